"""Pictures of samples: a grid with captions, and prompts over training (a strip)."""

import math
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Union

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

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return f"{matplotlib.get_data_path()}/fonts/ttf/{name}"


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


class _Sheet:
    """A white page with a title above and a note below, on which tiles and texts are drawn.

    Args:
        tile_width: pixels; the size of letters follows it.
        title: None for none.
        good: the score from which a frame is green, else red; None for no frames.
        full_text: names the file to look into where a caption is cut or has letters that the
            font lacks.
    """

    def __init__(
        self, tile_width: int, title: str | None, good: float | None, full_text: str
    ) -> None:
        size = max(14, tile_width // 13)
        self.text, self.bold = font(size), font(size, bold=True)
        self.line = round(1.3 * size)  # pixels from one line of text to the next
        self.title, self.good, self.full_text, self.note = title, good, full_text, ""
        self.head = _MARGIN if title is None else _MARGIN + round(2.4 * size)

    def wrapped(self, captions: Sequence[str], width: int, count: int = _LINES) -> list[list[str]]:
        """The lines of each caption; decides on the note."""
        texts = [wrap(caption, self.text, width, count) for caption in captions]
        is_cut = any(lines and lines[-1].endswith("…") for lines in texts)
        is_marked = any(MARK in line for lines in texts for line in lines)
        if self.full_text and (is_cut or is_marked):
            self.note = f"Prompts in full: {self.full_text}"
        return texts

    def open(self, width: int, bottom: int) -> None:
        """Begin a page whose tiles and texts end at `bottom`, and draw its title and note."""
        foot = _MARGIN + (_PAD + self.line if self.note else 0)
        self.paper = Image.new("RGB", (width, bottom + foot), "white")
        self.pen = ImageDraw.Draw(self.paper)
        within = width - 2 * _MARGIN
        if self.title is not None:
            face = font(round(1.35 * self.text.size), bold=True)
            line = wrap(self.title, face, within, 1)[0]
            self.pen.text((_MARGIN, _MARGIN - 4), line, INK, face)
        if self.note:
            corner = (_MARGIN, self.paper.height - _MARGIN - self.line + _PAD)
            self.pen.text(corner, _fit(self.note, self.text, within), FAINT, self.text)

    def frame(self, score: float | None) -> Color | None:
        """The color of a score; None without one."""
        if score is None or self.good is None or math.isnan(score):
            return None
        return GOOD if score >= self.good else BAD

    def paste(self, image: Image.Image, corner: tuple[int, int], score: float | None) -> None:
        """Paste an image with its top left at `corner`, framed by its score, else by a hairline."""
        x, y = corner
        frame = self.frame(score)
        thick = 1 if frame is None else 3
        box = (x - thick, y - thick, x + image.width + thick - 1, y + image.height + thick - 1)
        self.pen.rounded_rectangle(box, CORNER + thick, fill=frame or HAIRLINE)
        mask = Image.new("L", image.size, 0)
        ends = (0, 0, image.width - 1, image.height - 1)
        ImageDraw.Draw(mask).rounded_rectangle(ends, CORNER, fill=255)
        self.paper.paste(image, corner, mask)

    def write(self, lines: Sequence[str], corner: tuple[int, int]) -> tuple[int, int]:
        """Write lines of a caption; returns where the next one begins."""
        x, y = corner
        for n, line in enumerate(lines):
            self.pen.text((x, y + n * self.line), line, INK, self.text)
        return x, y + len(lines) * self.line

    def write_score(self, corner: tuple[int, int], score: float) -> None:
        """Write the score of a sample, in the color of its frame."""
        self.pen.text(corner, number(score), self.frame(score) or FAINT, self.bold)

    def save(self, path: Path) -> None:
        """Write a PNG."""
        with new_file(path) as file:
            self.paper.save(file, "PNG")


def grid(
    images: Sequence[Picture],
    captions: Sequence[str],
    path: Path | None = None,
    title: str | None = None,
    *,
    columns: int = 6,
    scores: Sequence[float] | None = None,
    good: float | None = None,
    full_text: str = "",
) -> Image.Image:
    """Images, each above its caption and its score; written as a PNG to `path`.

    The others are those of `_Sheet`.
    """
    tiles = [*map(tile, images)]
    width, height = tiles[0].size
    sheet = _Sheet(width, title, good, full_text)
    texts = sheet.wrapped(captions, width)
    columns = min(columns, len(tiles))
    starts = range(0, len(tiles), columns)
    rows = [max(map(len, texts[i : i + columns])) + (scores is not None) for i in starts]
    heights = [height + _PAD + lines * sheet.line + _GAP for lines in rows]
    full_width = _MARGIN + columns * (width + _GAP) - _GAP + _MARGIN
    sheet.open(full_width, sheet.head + sum(heights) - _GAP)
    for i, (image, lines) in enumerate(zip(tiles, texts, strict=True)):
        row, column = divmod(i, columns)
        x, y = _MARGIN + column * (width + _GAP), sheet.head + sum(heights[:row])
        score = scores[i] if scores is not None else None
        sheet.paste(image, (x, y), score)
        below = sheet.write(lines, (x, y + height + _PAD))
        if score is not None:
            sheet.write_score(below, score)
    if path is not None:
        sheet.save(path)
    return sheet.paper


def strip(
    rows: Sequence[Sequence[Picture]],
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    path: Path,
    title: str | None = None,
    *,
    scores: Sequence[Sequence[float | None]] | None = None,
    good: float | None = None,
    full_text: str = "",
) -> None:
    """Write a PNG with a prompt per row and a column per moment of training, or per run.

    Scores stand below the images, None for an image without one; the others as in `grid`.
    """
    tiles = [[tile(image) for image in row] for row in rows]
    width = max(image.width for row in tiles for image in row)
    height = max(image.height for row in tiles for image in row)
    sheet = _Sheet(width, title, good, full_text)
    labels = sheet.wrapped(row_labels, width, _LINES + 1)
    heads = [wrap(label, sheet.bold, width, _LINES) for label in column_labels]
    left = _MARGIN + round(max(sheet.text.getlength(s) for label in labels for s in label)) + _GAP
    top = sheet.head + max(map(len, heads)) * sheet.line + _PAD
    step = height + (_PAD + sheet.line if scores is not None else 0) + _GAP
    full_width = left + len(column_labels) * (width + _GAP) - _GAP + _MARGIN
    sheet.open(full_width, top + len(rows) * step - _GAP)
    for j, lines in enumerate(heads):
        x = left + j * (width + _GAP) + width // 2
        for n, line in enumerate(lines):
            corner = (x, sheet.head + n * sheet.line)
            sheet.pen.text(corner, line, FAINT, sheet.bold, "ma")
    for i, (row_tiles, lines) in enumerate(zip(tiles, labels, strict=True)):
        y = top + i * step
        for j, image in enumerate(row_tiles):
            x, score = left + j * (width + _GAP), scores[i][j] if scores else None
            sheet.paste(image, (x, y), score)
            if score is not None:
                sheet.write_score((x, y + height + _PAD), score)
        sheet.write(lines, (_MARGIN, y + (height - len(lines) * sheet.line) // 2))
    sheet.save(path)
