"""The share of a prompt's constraints that a completion fulfils."""

from typing import Any

import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import RewardError, Samples
from rlfactory.reward.instructions import Instructions

LOWER, WORDS = {"kind": "lower", "value": None}, {"kind": "words", "value": 2}


def scores(texts: list[str], constraints: list[Any]) -> dict[str, list[float]]:
    samples = Samples(
        prompts=["a"] * len(texts),
        metadata=[{"constraints": c} for c in constraints],
        groups=torch.arange(len(texts)),
        images=None,
        texts=texts,
    )
    return {name: value.tolist() for name, value in Instructions().score(samples).items()}


def test_shares() -> None:
    both = [LOWER, WORDS]
    found = scores(["two words", "Two words", "One", ""], [both] * 4)
    assert found["instructions"] == [1.0, 0.5, 0.0, 0.0]
    assert found["all_fulfilled"] == [1.0, 0.0, 0.0, 0.0]


def test_what_is_too_short_answers_nothing() -> None:
    begins, twelve = {"kind": "starts_with", "value": "Once"}, {"kind": "words", "value": 12}
    texts = ["Once", "Once there was a cat", "a museum", "hello", "once only"]
    asked = [[begins], [begins], [LOWER, twelve], [LOWER, {"kind": "one_word"}], [LOWER, WORDS]]
    assert scores(texts, asked)["instructions"] == [0.0, 1.0, 0.0, 1.0, 1.0]


def test_a_sample_without_constraints_has_no_score() -> None:
    found = scores(["a", "a"], [None, [LOWER]])
    assert torch.tensor(found["instructions"]).isnan().tolist() == [True, False]
    assert torch.tensor(found["all_fulfilled"]).isnan().tolist() == [True, False]


@pytest.mark.parametrize("wrong", [[], "lower", [{"kind": "rhyme"}], ["lower"]], ids=str)
def test_other_constraints_are_refused(wrong: object) -> None:
    with pytest.raises(RewardError, match="the prompt 'Say it': its constraints "):
        Instructions().check_prompts([Prompt("Say it", {"constraints": wrong})])
