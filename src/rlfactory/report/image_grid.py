"""Pictures of samples: a grid with captions, and prompts over training (a strip)."""

import math
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from PIL import Image, ImageDraw, ImageFont

from rlfactory.run.atomic_write import new_file
from rlfactory.utils.console import number
from rlfactory.utils.images import picture as as_picture

if TYPE_CHECKING:
    from torch import Tensor

Picture = Union["Tensor", Image.Image]
"""`[3, H, W]` uint8, a video `[F, 3, H, W]`, which is drawn as its contact sheet, or a Pillow
image."""
Color = tuple[int, int, int]
Font = ImageFont.FreeTypeFont

INK = (34, 34, 40)
FAINT = (110, 112, 120)
HAIRLINE = (222, 222, 228)
GOOD = (34, 150, 90)
BAD = (206, 62, 70)
CORNER = 11
"""The radius of a tile's corners: it hides a corner pixel of small images, where decoders err."""
_SMALLEST, _LARGEST = 160, 512  # pixels of a tile's longer side
_MARGIN, _GAP, _PAD = 28, 22, 9  # around the page, between tiles, between a tile and its caption
_LINES = 3
MARK = "[?]"
"""Stands for letters that the font lacks, which would look like empty boxes; pages have them."""


def tile(image: Picture) -> Image.Image:
    """An image as a tile: a small one enlarged by an integer factor, a large one reduced."""
    picture = image if isinstance(image, Image.Image) else as_picture(image)
    longest = max(picture.size)
    factor = -(-_SMALLEST // longest)
    if factor > 1:
        size = (picture.width * factor, picture.height * factor)
        return picture.resize(size, Image.Resampling.NEAREST)  # keeps pixels sharp
    if longest > _LARGEST:
        picture = picture.copy()
        picture.thumbnail((_LARGEST, _LARGEST), Image.Resampling.LANCZOS)
    return picture


@cache
def font(size: int, *, bold: bool = False) -> Font:
    """DejaVu Sans of a size in pixels, from matplotlib's files: the same on every machine."""
    return ImageFont.truetype(_dejavu(bold=bold), size)


def _dejavu(*, bold: bool = False) -> str:
    import matplotlib

    return f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans{'-Bold' if bold else ''}.ttf"


@cache
def _letters() -> frozenset[str]:
    """The letters that the font has."""
    from matplotlib.ft2font import FT2Font

    return frozenset(map(chr, FT2Font(_dejavu()).get_charmap()))


def drawable(text: str) -> str:
    """A text in one line, with a mark in the place of letters that the font lacks."""
    # without joiners and the like, which have no glyph of their own
    seen = (c for c in text if unicodedata.category(c) not in ("Cf", "Me") and c != "\ufe0f")
    runs = groupby(" ".join("".join(seen).split()), _letters().__contains__)
    return "".join("".join(letters) if known else MARK for known, letters in runs)


def wrap(text: str, face: Font, width: int, lines: int) -> list[str]:
    """Break `text` into at most `lines` lines of at most `width` pixels, an ellipsis if cut."""
    rows = [""]
    for word in drawable(text).split():
        longer = f"{rows[-1]} {word}".lstrip()
        if face.getlength(longer) <= width or not rows[-1]:
            rows[-1] = longer
        else:
            rows.append(word)
    if len(rows) > lines:
        rows = [*rows[: lines - 1], " ".join(rows[lines - 1 :])]
    return [_fit(row, face, width) for row in rows]


def _fit(row: str, face: Font, width: int) -> str:
    if face.getlength(row) <= width:
        return row
    while row and face.getlength(row + "…") > width:
        row = row[:-1]
    return row.rstrip() + "…"


def grid(
    images: Sequence[Picture],
    captions: Sequence[str],
    path: Path | None = None,
    *,
    columns: int = 6,
    scores: Sequence[float] | None = None,
    **look: Any,
) -> Image.Image:
    """Images, each above its caption and its score; `look` is that of `sheet`."""

    def rows(values: Sequence[Any]) -> list[Sequence[Any]]:
        return [values[i : i + columns] for i in range(0, len(values), columns)]

    shown = None if scores is None else rows(scores)
    return sheet(rows(images), path, captions=rows(captions), scores=shown, **look)


def sheet(
    images: Sequence[Sequence[Picture]],
    path: Path | None = None,
    *,
    captions: Sequence[Sequence[str]] = (),
    labels: Sequence[str] = (),
    heads: Sequence[str] = (),
    scores: Sequence[Sequence[float | None]] | None = None,
    title: str | None = None,
    good: float | None = None,
    full_text: str = "",
) -> Image.Image:
    """Rows of images on a white page; written as a PNG to `path`.

    Captions and scores stand below images, labels beside rows, heads above columns.

    Args:
        scores: None for an image without one.
        good: the score from which a frame is green, else red; None for no frames.
        full_text: names the file to look into where a text is cut or has letters that the font
            lacks.
    """
    rows = [[tile(image) for image in row] for row in images]
    width = max(image.width for row in rows for image in row)
    height = max(image.height for row in rows for image in row)
    size = max(14, width // 13)
    face, bold, line = font(size), font(size, bold=True), round(1.3 * size)
    below = [[wrap(text, face, width, _LINES) for text in row] for row in captions]
    beside = [wrap(label, face, width, _LINES + 1) for label in labels]
    above = [wrap(head, bold, width, _LINES) for head in heads]
    texts = [lines for row in below for lines in row] + beside
    cut = any(MARK in text or text.endswith("…") for lines in texts for text in lines)
    note = f"Prompts in full: {full_text}" if full_text and cut else ""

    side = max((face.getlength(text) for lines in beside for text in lines), default=-_GAP)
    left = _MARGIN + round(side) + _GAP
    head = _MARGIN + (round(2.4 * size) if title is not None else 0)
    top = head + (max(map(len, above)) * line + _PAD if above else 0)
    deep = [max((len(own) for own in row), default=0) for row in below] or [0] * len(rows)
    deep = [lines + (scores is not None) for lines in deep]
    steps = [height + (_PAD + lines * line if lines else 0) + _GAP for lines in deep]
    tops = [*accumulate(steps, initial=top)]
    full_width = left + max(map(len, rows)) * (width + _GAP) - _GAP + _MARGIN
    foot = _MARGIN + (_PAD + line if note else 0)
    paper = Image.new("RGB", (full_width, tops[-1] - _GAP + foot), "white")
    pen = ImageDraw.Draw(paper)

    within = full_width - 2 * _MARGIN
    if title is not None:
        large = font(round(1.35 * size), bold=True)
        pen.text((_MARGIN, _MARGIN - 4), wrap(title, large, within, 1)[0], INK, large)
    if note:
        corner = (_MARGIN, paper.height - _MARGIN - line + _PAD)
        pen.text(corner, _fit(note, face, within), FAINT, face)
    for j, lines in enumerate(above):
        middle = left + j * (width + _GAP) + width // 2
        _write(pen, lines, (middle, head), line, FAINT, bold, "ma")
    for i, (row, y) in enumerate(zip(rows, tops, strict=False)):
        if beside:
            corner = (_MARGIN, y + (height - len(beside[i]) * line) // 2)
            _write(pen, beside[i], corner, line, INK, face)
        for j, image in enumerate(row):
            x, score = left + j * (width + _GAP), scores[i][j] if scores is not None else None
            color = None
            if score is not None and good is not None and not math.isnan(score):
                color = GOOD if score >= good else BAD
            _paste(paper, image, (x, y), color)
            caption = below[i][j] if below else []
            _write(pen, caption, (x, y + height + _PAD), line, INK, face)
            if score is not None:
                corner = (x, y + height + _PAD + len(caption) * line)
                pen.text(corner, number(score), color or FAINT, bold)
    if path is not None:
        with new_file(path) as file:
            paper.save(file, "PNG")
    return paper


def _write(
    pen: ImageDraw.ImageDraw,
    lines: Sequence[str],
    corner: tuple[int, int],
    height: int,
    *look: Any,
) -> None:
    """Draw lines of text, each `height` pixels below the one before, by Pillow's `look`."""
    x, y = corner
    for n, text in enumerate(lines):
        pen.text((x, y + n * height), text, *look)


def _paste(
    paper: Image.Image, image: Image.Image, corner: tuple[int, int], frame: Color | None
) -> None:
    """Paste an image with its top left at `corner`, in a frame of a color, else in a hairline."""
    x, y = corner
    thick = 1 if frame is None else 3
    box = (x - thick, y - thick, x + image.width + thick - 1, y + image.height + thick - 1)
    ImageDraw.Draw(paper).rounded_rectangle(box, CORNER + thick, fill=frame or HAIRLINE)
    mask = Image.new("L", image.size, 0)
    ends = (0, 0, image.width - 1, image.height - 1)
    ImageDraw.Draw(mask).rounded_rectangle(ends, CORNER, fill=255)
    paper.paste(image, corner, mask)
