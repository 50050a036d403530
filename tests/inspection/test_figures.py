"""The figures of a network as large as GPT-2's smallest, with tokens as long as words are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from rlfactory.inspection.attribution import Attribution
from rlfactory.inspection.figures import (
    draw_attribution,
    draw_direction,
    draw_lens,
    draw_samples,
)
from rlfactory.inspection.survey import DirectionView, Survey, TokenView
from rlfactory.inspection.texts import Texts
from rlfactory.run.statistics import Change

L, H, TOKENS, WIDTH, SAMPLES = 12, 12, 16, 60, 4
WORDS = [" wonderful", " great", "\n", " unfortunately", " the", ",", " awful", " masterpiece"]


class Words:
    """Numbers to words."""

    eos_token_id = 999

    def decode(self, ids: list[int]) -> str:
        return WORDS[ids[0] % len(WORDS)]


def attribution(rows: int, directions: int, draw: Iterator[torch.Generator]) -> Attribution:
    shapes: list[tuple[int, ...]] = [(), (L,), (L,), (L, H), (L,), ()]
    return Attribution(*(torch.randn(rows, *s, directions, generator=next(draw)) for s in shapes))


def view(draw: Iterator[torch.Generator], shift: float) -> TokenView:
    rows = SAMPLES * (WIDTH - 10)
    at = torch.arange(rows)
    growing = torch.linspace(0, shift, L + 1)[:, None]
    logits = torch.randn(rows, L + 1, TOKENS, generator=next(draw))
    sign = torch.ones(TOKENS)
    sign[TOKENS // 2 :] = -1
    return TokenView(
        lens=(logits + growing * sign).sigmoid().log() - 5,
        next=torch.randn(rows, L + 1, generator=next(draw)) - 3,
        parts=attribution(rows, TOKENS, draw),
        ends=at % (WIDTH - 10) == 0,
        sample=at // (WIDTH - 10),
    )


@pytest.fixture
def survey() -> Survey:
    generator = torch.Generator().manual_seed(0)
    draw = iter(lambda: generator, None)
    at = torch.arange(WIDTH).expand(SAMPLES, -1)
    one = attribution(1, 1, draw).map(lambda parts: parts / 60)
    return Survey(
        texts=Texts(at, at >= 10, (at >= 9) & (at < WIDTH - 1), at == 9),
        scores=torch.tensor([0.3, torch.nan, 0.9, 0.1]),
        ids=torch.arange(TOKENS),
        probability=torch.rand(2, 20, generator=generator),
        base=view(draw, 0.0),
        tuned=view(draw, 3.0),
        direction=DirectionView(
            gap=one,
            shift=one,
            change=Change(0.1, 0.4, 0.3, 0.2, 0.4, 32),
            separation=0.8,
            up=torch.arange(8),
            down=torch.arange(8),
        ),
    )


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that is saved, to be looked into."""
    kept: list[Figure] = []
    real = Figure.savefig

    def keep(self: Figure, *args: Any, **kwargs: Any) -> None:
        kept.append(self)
        real(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", keep)
    return kept


def test_nothing_overlaps_or_leaves_the_page(
    survey: Survey, figures: list[Figure], tmp_path: Path
) -> None:
    assert survey.direction is not None
    draw_lens(survey, Words(), tmp_path / "lens.png")
    draw_samples(survey, Words(), tmp_path / "samples.png")
    draw_attribution(survey, Words(), tmp_path / "attribution.png")
    draw_direction(survey.direction, tmp_path / "direction.png")
    assert len(figures) == 4
    for figure in figures:
        page = figure.bbox
        labels = [axes.get_tightbbox() for axes in figure.axes]
        for box in labels:
            assert box is not None
            assert page.x0 <= box.x0 + 1
            assert box.x1 <= page.x1 + 1
        boxes = [axes.get_window_extent() for axes in figure.axes]
        for i, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[i + 1 :])


def test_tokens_are_named_and_samples_cut(
    survey: Survey, figures: list[Figure], tmp_path: Path
) -> None:
    draw_samples(survey, Words(), tmp_path / "samples.png")
    best, worst, _ = figures[0].axes
    assert "0.900" in best.get_title(loc="left")
    assert "0.100" in worst.get_title(loc="left")
    assert len(best.get_xticklabels()) == 40
    assert "␣wonderful" in [label.get_text() for label in best.get_xticklabels()]
