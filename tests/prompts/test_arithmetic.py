import pytest

from rlfactory.prompts.arithmetic import LARGEST, Arithmetic, problem
from rlfactory.prompts.base import PromptError


def pair_of(prompt):
    a, b = map(int, prompt.text.rstrip("=").replace("-", " ").replace("+", " ").split())
    return frozenset((a, b))


def test_answers_are_right():
    for prompt in Arithmetic(largest=12, operations=["+", "-", "*"]).prompts:
        assert prompt.metadata["answer"] == str(eval(prompt.text[:-1]))
    assert problem(3, "-", 10).metadata == {"answer": "-7"}


def test_a_pair_of_numbers_is_held_out_in_both_orders_and_all_operations():
    prompts = Arithmetic()
    assert prompts.separate
    assert len(prompts.prompts) + len(prompts.eval_prompts) == 20_000
    assert len(prompts.eval_prompts) == pytest.approx(2_000, abs=20)
    kept, held = (set(map(pair_of, part)) for part in (prompts.prompts, prompts.eval_prompts))
    assert not kept & held


def test_held_out_problems_are_of_both_operations():
    held = Arithmetic().held_out(100)
    assert sum("+" in prompt.text for prompt in held) == 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operations": ["/"]}, "operations"),
        ({"operations": []}, "operations"),
        ({"largest": LARGEST + 1}, "at most 300"),
        ({"largest": 2, "held_out_share": 1.0}, "leaves none"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(PromptError, match=message):
        Arithmetic(**options)
