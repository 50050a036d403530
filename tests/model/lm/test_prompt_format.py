"""Prompts and completions of conversations are tokens as a chat template writes them."""

from pathlib import Path
from typing import Any

import pytest
from tiny_language_models import KINDS, TEMPLATES, tiny_tokenizer
from transformers import AutoTokenizer

from rlfactory.model.lm.prompt_format import PromptFormat
from rlfactory.prompts.ops.chat import ChatText
from rlfactory.utils.errors import ModelError

ASKED = ChatText([{"role": "user", "content": "2 + 2?"}])
LONGER = ChatText(
    [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "and 1 more?"},
    ]
)


def decoded(tokenizer: Any, rows: list[list[int]]) -> list[str]:
    return [tokenizer.decode(row) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_the_tokenizers_own_ids(kind: str) -> None:
    tokenizer = tiny_tokenizer(kind)
    found = PromptFormat(tokenizer).prompt_ids([ASKED, LONGER, ASKED, "plain"])
    for ids, prompt in zip(found, [ASKED, LONGER, ASKED], strict=False):
        theirs = tokenizer.apply_chat_template(
            list(prompt.messages), add_generation_prompt=True, return_dict=True
        )
        assert ids == theirs.input_ids
    assert found[3] == tokenizer("plain").input_ids


@pytest.mark.parametrize("kind", KINDS)
def test_completions_are_what_the_template_writes_up_to_the_end_of_the_turn(kind: str) -> None:
    tokenizer = tiny_tokenizer(kind)
    prompts = PromptFormat(tokenizer)
    for prompt in (ASKED, LONGER):
        whole = tokenizer.apply_chat_template(
            [*prompt.messages, {"role": "assistant", "content": "4, of course"}], tokenize=False
        )
        (asked,), (reply,) = (
            prompts.prompt_ids([prompt]),
            prompts.completion_ids([prompt], ["4, of course"]),
        )
        assert tokenizer.decode([*asked, *reply]) == whole.removesuffix("\n")
        assert tokenizer.decode(reply) == "4, of course" + prompts.turn_end


@pytest.mark.parametrize(
    ("kind", "end"),
    [("llama", "<|eot|>"), ("qwen3", "<|im_end|>"), ("gemma3", "<end_of_turn>")],
)
def test_the_end_of_a_turn_is_the_templates(kind: str, end: str) -> None:
    prompts = PromptFormat(tiny_tokenizer(kind))
    assert prompts.turn_end == end
    assert PromptFormat(tiny_tokenizer(kind), template="none").turn_end_id == (
        prompts.tokenizer.eos_token_id
    )


def test_a_system_prompt_stands_first_unless_there_is_one() -> None:
    tokenizer = tiny_tokenizer()
    prompts = PromptFormat(tokenizer, system_prompt="Be brief.", text_role="user")
    own = ChatText([{"role": "system", "content": "Rhyme."}, *ASKED.messages])
    shown = decoded(tokenizer, prompts.prompt_ids([ASKED, own, "2 + 2?"]))
    begin = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n"
    assert shown[0] == begin + "<|im_start|>assistant\n"
    assert "Rhyme." in shown[1]
    assert "Be brief." not in shown[1]
    assert shown[2] == shown[0], "a text is a user's message"


def test_options_reach_the_template_also_where_completions_are_cut() -> None:
    tokenizer = tiny_tokenizer()
    prompts = PromptFormat(tokenizer, options={"enable_thinking": False})
    assert decoded(tokenizer, prompts.prompt_ids([ASKED]))[0].endswith("<think>\n\n</think>\n\n")
    # this template leaves the thoughts out of an answer: the answer itself follows the prompt
    assert decoded(tokenizer, prompts.completion_ids([ASKED], ["4"])) == ["4<|im_end|>"]


def test_an_answer_that_was_begun_goes_on() -> None:
    tokenizer = tiny_tokenizer()
    prompts = PromptFormat(tokenizer)
    begun = ChatText([*ASKED.messages, {"role": "assistant", "content": "It is"}])
    assert decoded(tokenizer, prompts.prompt_ids([begun]))[0].endswith("assistant\nIt is")
    assert decoded(tokenizer, prompts.completion_ids([begun], [" 4"])) == [" 4<|im_end|>"]


@pytest.mark.parametrize("template", ["plain", "file"])
def test_other_templates(template: str, gpt2_folder: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    file = tmp_path / "template.jinja"
    file.write_text("{% for m in messages %}[{{ m['content'] }}]{% endfor %}")
    prompts = PromptFormat(tokenizer, template=str(file) if template == "file" else "plain")
    (ids,), (reply,) = prompts.prompt_ids([ASKED]), prompts.completion_ids([ASKED], ["4"])
    if template == "plain":
        assert tokenizer.decode(ids) == "<|endoftext|>user: 2 + 2?\nassistant:"
        assert tokenizer.decode(reply) == " 4<|endoftext|>"
    else:
        assert tokenizer.decode(ids) == "[2 + 2?]"
        assert tokenizer.decode(reply) == "[4]<|endoftext|>"


def test_errors_say_what_to_type(gpt2_folder: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    with pytest.raises(ModelError, match=r"'user: 2 \+ 2\?' is a list.*chat_template=plain"):
        PromptFormat(tokenizer).prompt_ids([ASKED])
    with pytest.raises(ModelError, match="no chat template"):
        PromptFormat(tiny_tokenizer(), template="none").prompt_ids([ASKED])
    with pytest.raises(ModelError, match=r"can't be read.*No such file"):
        PromptFormat(tokenizer, template=str(tmp_path / "none.jinja"))
    gemma = PromptFormat(tiny_tokenizer("gemma3"), system_prompt="Be brief.")
    with pytest.raises(ModelError, match=r"system, user: System role.*model.system_prompt=null"):
        gemma.prompt_ids([ASKED])
    with pytest.raises(ModelError, match="a prompt is empty"):
        PromptFormat(tokenizer).prompt_ids([""])


def test_a_tokenizer_that_begins_texts_itself_begins_empty_ones() -> None:
    tokenizer = tiny_tokenizer("llama")
    tokenizer.add_bos_token = True
    prompts, begin, end = (
        PromptFormat(tokenizer),
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
    )
    assert prompts.prompt_ids(["", "x"]) == [[begin], tokenizer("x").input_ids]
    assert prompts.completion_ids([""], ["x"]) == [[*tokenizer("x").input_ids[1:], end]]


def test_an_example_of_records() -> None:
    prompts = PromptFormat(tiny_tokenizer())
    assert prompts.messages_of_transcript("a film") is None
    assert prompts.messages_of_transcript(str(ASKED)) == [*ASKED.messages]
    several = prompts.messages_of_transcript(str(LONGER))
    assert several == [{"role": "user", "content": "Hello"}]
    assert set(TEMPLATES) >= set(KINDS)
