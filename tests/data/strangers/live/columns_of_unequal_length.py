"""Rows by column, of which one is shorter."""

SAYS = "prompts: its columns differ in length: {'prompt': 2, 'answer': 1}"


def given(model, tokenizer):
    return {"prompts": {"prompt": ["a", "b"], "answer": ["1"]}}
