"""What an engine returned is what was asked for, or an error."""

import pytest

from rlfactory.engine.base import Completion, EngineError, SamplingSettings
from rlfactory.engine.ops.checked import checked

SETTINGS = SamplingSettings(length=4, temperature=1.0, stop=(0,))
GOOD = Completion([5, 6, 0], [-1.0, -2.0, -0.5])
FULL = Completion([5, 6, 7, 8], [-1.0] * 4)


def test_what_was_asked_for_passes() -> None:
    assert checked([GOOD, FULL], 2, SETTINGS, 10) == [GOOD, FULL]


@pytest.mark.parametrize(
    ("completion", "message"),
    [
        (Completion([], []), "is empty"),
        (Completion([1] * 5, [-1.0] * 5), "has 5 tokens, and dynamics.length=4"),
        (Completion([5, 10, 0], [-1.0] * 3), "token 10, outside the model's 10 tokens"),
        (Completion([5, -1, 0], [-1.0] * 3), "token -1, outside"),
        (Completion([5, 0, 6, 0], [-1.0] * 4), "goes on after a stop token"),
        (Completion([5, 6], [-1.0] * 2), "ends after 2 tokens without a stop token"),
        (Completion([5, 6, 0], [-1.0] * 2), "2 log-probabilities for 3 tokens"),
        (Completion([5, 6, 0], [-1.0, float("nan"), -1.0]), "no finite number below 0"),
        (Completion([5, 6, 0], [-1.0, 0.5, -1.0]), "no finite number below 0"),
    ],
)
def test_anything_else_is_refused(completion: Completion, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        checked([GOOD, completion], 2, SETTINGS, 10)


def test_fewer_responses_are_refused() -> None:
    with pytest.raises(EngineError, match="1 responses to 2 prompts"):
        checked([GOOD], 2, SETTINGS, 10)
