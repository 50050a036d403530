"""Pictures of samples: a grid with captions, prompts over training (a strip), and pairs."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

from PIL import Image, ImageDraw

from rlfactory.run.atomic_write import new_file
from rlfactory.run.figures.fonts import Face, has_missing_letters
from rlfactory.utils.console import number
from rlfactory.utils.images import picture as as_picture

if TYPE_CHECKING:
    from torch import Tensor

Picture = Union["Tensor", Image.Image]
"""`[3, H, W]` uint8, a video `[F, 3, H, W]`, which is drawn as its contact sheet, or a Pillow
image."""
Color = tuple[int, int, int]

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
# Chinese, Japanese and Korean letters, between any two of which a line may end
_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"


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


def wrap(text: str, face: Face, width: int, lines: int) -> list[str]:
    """Break `text` into at most `lines` lines of at most `width` pixels, an ellipsis if cut."""
    rows = [""]
    for word in re.findall(rf" ?[{_WIDE}]| ?[^ {_WIDE}]+", " ".join(text.split())):
        longer = rows[-1] + word
        if face.getlength(longer.strip()) <= width or not rows[-1]:
            rows[-1] = longer.strip() if not rows[-1] else longer
        else:
            rows.append(word.strip())
    if len(rows) > lines:
        rows = [*rows[: lines - 1], " ".join(rows[lines - 1 :])]
    return [_fit(row, face, width) for row in rows]


def _fit(row: str, face: Face, width: int) -> str:
    if face.getlength(row) <= width:
        return row
    while row and face.getlength(row + "…") > width:
        row = row[:-1]
    return row.rstrip() + "…"


def line_height(face: Face) -> int:
    """Pixels from one line of text to the next."""
    return round(1.3 * face.size)


def _page(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """A white image of that size, and what draws on it."""
    image = Image.new("RGB", (width, height), "white")
    return image, ImageDraw.Draw(image)


def _paste(
    paper: Image.Image, image: Image.Image, corner: tuple[int, int], frame: Color | None
) -> None:
    """Paste an image with its top left at `corner`, in a frame of 3 pixels or else a hairline."""
    x, y = corner
    thick = 1 if frame is None else 3
    box = (x - thick, y - thick, x + image.width + thick - 1, y + image.height + thick - 1)
    ImageDraw.Draw(paper).rounded_rectangle(box, CORNER + thick, fill=frame or HAIRLINE)
    mask = Image.new("L", image.size, 0)
    ends = (0, 0, image.width - 1, image.height - 1)
    ImageDraw.Draw(mask).rounded_rectangle(ends, CORNER, fill=255)
    paper.paste(image, corner, mask)


def grid(
    images: Sequence[Picture],
    captions: Sequence[str],
    path: Path,
    title: str | None = None,
    columns: int = 6,
    *,
    scores: Sequence[float] | None = None,
    good: float | None = None,
    full_text: str = "",
) -> None:
    """Write a PNG of `grid_page`."""
    page = grid_page(
        images, captions, title, columns, scores=scores, good=good, full_text=full_text
    )
    with new_file(path) as file:
        page.save(file, "PNG")


def grid_page(
    images: Sequence[Picture],
    captions: Sequence[str],
    title: str | None = None,
    columns: int = 6,
    *,
    scores: Sequence[float] | None = None,
    good: float | None = None,
    full_text: str = "",
) -> Image.Image:
    """Images, each above its caption and its score.

    With `good`, a frame is green if the score is at least that, else red. `full_text` names the
    file to look into where a caption is cut or has letters that no font has.
    """
    _same_length(len(images), captions=captions, scores=scores)
    tiles = [tile(image) for image in images]
    tile_width, tile_height = tiles[0].size
    text, score_text = _fonts(tile_width)
    texts = [wrap(caption, text, tile_width, _LINES) for caption in captions]
    columns = min(columns, len(tiles))
    starts = range(0, len(tiles), columns)
    rows = [max(map(len, texts[i : i + columns])) + (scores is not None) for i in starts]
    heights = [tile_height + _PAD + lines * line_height(text) + _GAP for lines in rows]
    note = _note(texts, captions, full_text)
    head, foot = _head_height(title, tile_width), _foot_height(note, text)
    width = 2 * _MARGIN + columns * tile_width + (columns - 1) * _GAP
    paper, pen = _page(width, head + sum(heights) - _GAP + foot)
    _draw_title(paper, title, tile_width)
    _draw_note(paper, note, text)
    for i, (image, lines) in enumerate(zip(tiles, texts, strict=True)):
        row, column = divmod(i, columns)
        x, y = _MARGIN + column * (tile_width + _GAP), head + sum(heights[:row])
        _paste(paper, image, (x, y), _frame(scores[i] if scores else None, good))
        y += tile_height + _PAD
        for line in lines:
            text.draw(pen, (x, y), line, INK)
            y += line_height(text)
        if scores is not None:
            score_text.draw(pen, (x, y), number(scores[i]), _frame(scores[i], good) or FAINT)
    return paper


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

    Scores stand below the images, None for an image without one; frames and `full_text` as in
    `grid`.
    """
    _same_length(len(rows), row_labels=row_labels, scores=scores)
    for row in rows:
        _same_length(len(row), column_labels=column_labels)
    tiles = [[tile(image) for image in row] for row in rows]
    tile_width = max(image.width for row in tiles for image in row)
    tile_height = max(image.height for row in tiles for image in row)
    text, heading = _fonts(tile_width)
    labels = [wrap(label, text, tile_width, _LINES + 1) for label in row_labels]
    heads = [wrap(label, heading, tile_width, _LINES) for label in column_labels]
    left = _MARGIN + round(max(text.getlength(line) for label in labels for line in label)) + _GAP
    title_height = _head_height(title, tile_width)
    top = title_height + max(map(len, heads)) * line_height(heading) + _PAD
    below = _PAD + line_height(heading) if scores is not None else 0
    width = left + len(column_labels) * (tile_width + _GAP) - _GAP + _MARGIN
    step = tile_height + below + _GAP
    note = _note(labels, row_labels, full_text)
    paper, pen = _page(width, top + len(rows) * step - _GAP + _foot_height(note, text))
    _draw_title(paper, title, tile_width)
    _draw_note(paper, note, text)
    for j, lines in enumerate(heads):
        x = left + j * (tile_width + _GAP) + tile_width // 2
        for n, line in enumerate(lines):
            corner = (x, title_height + n * line_height(heading))
            heading.draw(pen, corner, line, FAINT, centred=True)
    for i, (row_tiles, lines) in enumerate(zip(tiles, labels, strict=True)):
        y = top + i * step
        for j, image in enumerate(row_tiles):
            x, score = left + j * (tile_width + _GAP), scores[i][j] if scores else None
            _paste(paper, image, (x, y), _frame(score, good))
            if score is not None:
                color = _frame(score, good) or FAINT
                heading.draw(pen, (x, y + tile_height + _PAD), number(score), color)
        y += (tile_height - len(lines) * line_height(text)) // 2
        for n, line in enumerate(lines):
            text.draw(pen, (_MARGIN, y + n * line_height(text)), line, INK)
    with new_file(path) as file:
        paper.save(file, "PNG")


def pairs(
    before: Sequence[Picture],
    after: Sequence[Picture],
    captions: Sequence[str],
    path: Path,
    title: str | None = None,
    columns: int = 6,
    *,
    scores: Sequence[tuple[float, float]],
    good: float | None = None,
    full_text: str = "",
) -> None:
    """Write a PNG with a column per prompt: its sample before training, and below it that after.

    Scores are those before and after; frames and `full_text` as in `grid`.
    """
    _same_length(len(before), after=after, captions=captions, scores=scores)
    tiles = [(tile(old), tile(new)) for old, new in zip(before, after, strict=True)]
    tile_width, tile_height = tiles[0][0].size
    text, bold = _fonts(tile_width)
    columns = min(columns, len(tiles))
    texts = [wrap(caption, text, tile_width, _LINES) for caption in captions]
    names = ("before", "after")
    left = _MARGIN + round(max(map(bold.getlength, names))) + _GAP
    high = 2 * (tile_height + _PAD) + (_LINES + 1) * line_height(text) + _GAP
    note = _note(texts, captions, full_text)
    head, foot = _head_height(title, tile_width), _foot_height(note, text)
    blocks = -(-len(tiles) // columns)
    width = left + columns * (tile_width + _GAP) - _GAP + _MARGIN
    paper, pen = _page(width, head + blocks * high - _GAP + foot)
    _draw_title(paper, title, tile_width)
    _draw_note(paper, note, text)
    for i, (images, lines) in enumerate(zip(tiles, texts, strict=True)):
        block, column = divmod(i, columns)
        x, y = left + column * (tile_width + _GAP), head + block * high
        for name, image, score in zip(names, images, scores[i], strict=True):
            _paste(paper, image, (x, y), _frame(score, good))
            if column == 0:
                middle = y + (tile_height - line_height(bold)) // 2
                bold.draw(pen, (_MARGIN, middle), name, FAINT)
            y += tile_height + _PAD
        for line in lines:
            text.draw(pen, (x, y), line, INK)
            y += line_height(text)
        words = f"{number(scores[i][0])} → {number(scores[i][1])}"
        bold.draw(pen, (x, y), words, _frame(scores[i][1], good) or FAINT)
    with new_file(path) as file:
        paper.save(file, "PNG")


def _fonts(tile_width: int) -> tuple[Face, Face]:
    size = max(14, tile_width // 13)
    return Face(size), Face(size, bold=True)


def _head_height(title: str | None, tile_width: int) -> int:
    return _MARGIN if title is None else _MARGIN + round(2.4 * _fonts(tile_width)[0].size)


def _draw_title(paper: Image.Image, title: str | None, tile_width: int) -> None:
    if title is None:
        return
    face = Face(round(1.35 * _fonts(tile_width)[0].size), bold=True)
    line = wrap(title, face, paper.width - 2 * _MARGIN, 1)[0]
    face.draw(ImageDraw.Draw(paper), (_MARGIN, _MARGIN - 4), line, INK)


def _note(texts: Sequence[Sequence[str]], captions: Sequence[str], full_text: str) -> str:
    """Where a caption is not shown as it is: what to look into."""
    is_cut = any(lines and lines[-1].endswith("…") for lines in texts)
    if full_text and (is_cut or any(map(has_missing_letters, captions))):
        return f"Prompts in full: {full_text}"
    return ""


def _foot_height(note: str, face: Face) -> int:
    return _MARGIN + (_PAD + line_height(face) if note else 0)


def _draw_note(paper: Image.Image, note: str, face: Face) -> None:
    if note:
        line = _fit(note, face, paper.width - 2 * _MARGIN)
        corner = (_MARGIN, paper.height - _MARGIN - line_height(face) + _PAD)
        face.draw(ImageDraw.Draw(paper), corner, line, FAINT)


def _frame(score: float | None, good: float | None) -> Color | None:
    if score is None or good is None or math.isnan(score):
        return None
    return GOOD if score >= good else BAD


def _same_length(count: int, **others: Sequence[object] | None) -> None:
    for name, other in others.items():
        if other is not None and len(other) != count:
            raise ValueError(f"{name} has {len(other)} entries instead of {count}")
    if count == 0:
        raise ValueError("no images to draw")
