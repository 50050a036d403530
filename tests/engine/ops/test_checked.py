"""What an engine returned is what was asked for, or an error."""

from types import SimpleNamespace

import pytest

from rlfactory.engine.base import Completion, EngineError, SamplingSettings
from rlfactory.engine.ops.checked import checked
from rlfactory.model.lm.stop_texts import StopTexts

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


def test_a_response_is_cut_where_a_stop_text_is_complete() -> None:
    words = {5: "xE", 6: "Nx", 7: "ND", 8: "END"}
    texts = StopTexts(Words(words), ["EN", "END"])
    settings = SamplingSettings(length=4, temperature=1.0, stop=(0,), stop_texts=texts)
    drawn = [
        Completion([1, 5, 6, 1], [-1.0, -2.0, -3.0, -4.0]),  # an engine that goes on
        Completion([8], [-1.0]),  # and one that stops by itself
        Completion([5, 5, 0], [-1.0] * 3),
        Completion([6, 7, 1, 6], [-1.0] * 4),
    ]
    found = checked(drawn, 4, settings, 10)
    assert found == [Completion([1, 5, 6], [-1.0, -2.0, -3.0]), *drawn[1:]]
    assert [settings.ends(c.ids) for c in found] == [True, True, True, False]
    with pytest.raises(EngineError, match="ends after 2 tokens without a stop token"):
        checked([Completion([5, 5], [-1.0] * 2)], 1, settings, 10)


class Words:
    """A tokenizer of a few words; other ids are points."""

    def __init__(self, words: dict[int, str]) -> None:
        self.words = words

    def __call__(self, text: str, add_special_tokens: bool) -> SimpleNamespace:
        return SimpleNamespace(input_ids=[1])

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return "".join(self.words.get(i, ".") for i in ids)


def test_ids_that_no_token_has_are_refused() -> None:
    settings = SamplingSettings(length=4, temperature=1.0, stop=(0,), unused=(6, 9))
    with pytest.raises(EngineError, match="has id 6, which no token has"):
        checked([GOOD], 1, settings, 10)


def test_fewer_responses_are_refused() -> None:
    with pytest.raises(EngineError, match="1 responses to 2 prompts"):
        checked([GOOD], 2, SETTINGS, 10)
