"""Pictures of samples: a captioned grid, and the same prompts over training."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from rlfactory.run.canvas import BAD, FAINT, GOOD, INK, font, line_height, page, paste, tile, wrap
from rlfactory.run.format import number

if TYPE_CHECKING:
    from torch import Tensor

_MARGIN, _GAP, _AIR = 28, 22, 9  # around the page, between tiles, between a tile and its caption
_LINES = 3


def grid(
    images: "Tensor",
    captions: Sequence[str],
    path: Path,
    title: str | None = None,
    columns: int = 6,
    *,
    scores: Sequence[float] | None = None,
    good: float | None = None,
) -> None:
    """Write a PNG of `images` `[N, 3, H, W]` uint8, each above its caption and its score.

    With `good`, frames are green from that score on and red below it.
    """
    _same_length(len(images), captions=captions, scores=scores)
    tiles = [tile(image) for image in images]
    wide, high = tiles[0].size
    text, score_text = _faces(wide)
    texts = [wrap(caption, text, wide, _LINES) for caption in captions]
    columns = min(columns, len(tiles))
    starts = range(0, len(tiles), columns)
    rows = [max(map(len, texts[i : i + columns])) + (scores is not None) for i in starts]
    heights = [high + _AIR + lines * line_height(text) + _GAP for lines in rows]
    head = _head_height(title, wide)
    width = 2 * _MARGIN + columns * wide + (columns - 1) * _GAP
    paper, pen = page(width, head + sum(heights) - _GAP + _MARGIN)
    _draw_title(paper, title, wide)
    for i, (picture, lines) in enumerate(zip(tiles, texts, strict=True)):
        row, column = divmod(i, columns)
        x, y = _MARGIN + column * (wide + _GAP), head + sum(heights[:row])
        paste(paper, picture, (x, y), frame=_frame(scores[i] if scores else None, good))
        y += high + _AIR
        for line in lines:
            pen.text((x, y), line, INK, text)
            y += line_height(text)
        if scores is not None:
            pen.text((x, y), number(scores[i]), _frame(scores[i], good) or FAINT, score_text)
    paper.save(path)


def strip(
    rows: Sequence[Sequence["Tensor"]],
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    path: Path,
    title: str | None = None,
    *,
    scores: Sequence[Sequence[float]] | None = None,
    good: float | None = None,
) -> None:
    """Write a PNG with a prompt per row and a moment of training per column.

    `rows[i][j]` is `[3, H, W]` uint8; frames by `scores[i][j]` as in `grid`.
    """
    _same_length(len(rows), row_labels=row_labels, scores=scores)
    for row in rows:
        _same_length(len(row), column_labels=column_labels)
    tiles = [[tile(image) for image in row] for row in rows]
    wide, high = tiles[0][0].size
    text, heading = _faces(wide)
    labels = [wrap(label, text, wide, _LINES + 1) for label in row_labels]
    left = _MARGIN + round(max(text.getlength(line) for label in labels for line in label)) + _GAP
    title_height = _head_height(title, wide)
    top = title_height + line_height(heading) + _AIR
    width = left + len(column_labels) * (wide + _GAP) - _GAP + _MARGIN
    paper, pen = page(width, top + len(rows) * (high + _GAP) - _GAP + _MARGIN)
    _draw_title(paper, title, wide)
    for j, label in enumerate(column_labels):
        x = left + j * (wide + _GAP) + wide // 2
        pen.text((x, title_height), label, FAINT, heading, anchor="ma")
    for i, (row_tiles, lines) in enumerate(zip(tiles, labels, strict=True)):
        y = top + i * (high + _GAP)
        for j, picture in enumerate(row_tiles):
            frame = _frame(scores[i][j] if scores else None, good)
            paste(paper, picture, (left + j * (wide + _GAP), y), frame=frame)
        y += (high - len(lines) * line_height(text)) // 2
        for n, line in enumerate(lines):
            pen.text((_MARGIN, y + n * line_height(text)), line, INK, text)
    paper.save(path)


def _faces(wide: int) -> tuple["ImageFont.FreeTypeFont", "ImageFont.FreeTypeFont"]:
    size = max(14, wide // 13)
    return font(size), font(size, bold=True)


def _head_height(title: str | None, wide: int) -> int:
    return _MARGIN if title is None else _MARGIN + round(2.4 * _faces(wide)[0].size)


def _draw_title(paper: Image.Image, title: str | None, wide: int) -> None:
    if title is None:
        return
    face = font(round(1.35 * _faces(wide)[0].size), bold=True)
    line = wrap(title, face, paper.width - 2 * _MARGIN, 1)[0]
    ImageDraw.Draw(paper).text((_MARGIN, _MARGIN - 4), line, INK, face)


def _frame(score: float | None, good: float | None) -> tuple[int, int, int] | None:
    if score is None or good is None or math.isnan(score):
        return None
    return GOOD if score >= good else BAD


def _same_length(count: int, **others: Sequence[object] | None) -> None:
    for name, other in others.items():
        if other is not None and len(other) != count:
            raise ValueError(f"{count} wanted, but {name} has {len(other)}")
    if count == 0:
        raise ValueError("no pictures to draw")
