"""Prompts for rewards of preference: distinct, varied, a quarter held out."""

from collections import Counter

import pytest

from rlfactory.prompts.base import PromptError
from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.prompts.preferences import STYLES, TEXTS, THEMES, Preferences

SUBJECTS = [TEXTS[kind] for kind, _ in THEMES]


def test_they_are_many_and_distinct() -> None:
    source = Preferences()
    texts = [p.text for p in [*source.prompts, *source.eval_prompts]]
    assert len(set(texts)) == len(texts)
    assert 1_500 < len(texts) < 2_000
    assert max(len(text.split()) for text in texts) < 25, "CLIP reads 77 tokens"
    assert all(text == text.strip() and '"' not in text for text in texts)


def test_every_subject_is_asked_in_many_styles() -> None:
    texts = [p.text for p in [*Preferences().prompts, *Preferences().eval_prompts]]
    for subject in sum(SUBJECTS, ()):
        styles = {s for t in texts for s in STYLES if t.startswith(subject) and t.endswith(s)}
        assert len(styles) > 10, subject
    counts = Counter(s for t in texts for s in STYLES if t.endswith(f", {s}"))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_quarter_is_held_out_and_of_all_kinds() -> None:
    source = Preferences()
    drawn = {p.text for k in range(40) for p in source.draw(48, seed=0, iteration=k)}
    assert not any(is_held_out(text) for text in drawn)
    held = source.held_out(256)
    assert len({p.text for p in held}) == 256
    assert all(is_held_out(p.text) for p in held)
    assert held == Preferences().held_out(256)
    for kind in SUBJECTS:
        assert sum(p.text.startswith(kind) for p in held) > 40


def test_an_epoch_repeats_nothing() -> None:
    source = Preferences()
    epoch = len(source.prompts) // 48
    drawn = [p.text for k in range(epoch) for p in source.draw(48, seed=3, iteration=k)]
    assert len(set(drawn)) == len(drawn)


def test_draws_are_keyed() -> None:
    draws = [Preferences().draw(8, seed=s, iteration=i) for s, i in ((0, 4), (0, 5), (1, 4))]
    assert draws[0] == Preferences().draw(8, seed=0, iteration=4)
    assert draws[0] != draws[1]
    assert draws[0] != draws[2]


def test_styles_of_ones_own() -> None:
    source = Preferences(styles=["in crayon"])
    assert all(p.text.endswith(", in crayon") for p in source.draw(8, seed=0, iteration=0))


@pytest.mark.parametrize("styles", [[], [" "], ["pixel art", ""]])
def test_styles_that_are_none(styles: list[str]) -> None:
    with pytest.raises(PromptError, match=r"prompts\.styles"):
        Preferences(styles=styles)
