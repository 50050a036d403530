"""Two functions without names."""

SAYS = "name each reward: reward={'correct': f, 'short': g}"


def given(model, tokenizer):
    return {"reward": [lambda completions: [1.0], lambda completions: [0.0]]}
