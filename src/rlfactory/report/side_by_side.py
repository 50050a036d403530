"""The same prompts drawn by several runs: a prompt a row, a run a column."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from rlfactory.run.canvas import FAINT, INK, font, line_height, page, paste, sized, wrap
from rlfactory.run.folder import RunFolder

_MARGIN, _GAP, _LINES = 28, 22, 4


def draw_pairs(runs: Sequence[tuple[str, Path]], prompts: Sequence[str], path: Path) -> Path | None:
    """Write a PNG of the last pictures that named runs kept; None where one kept none."""
    columns = [last_pictures(place) for _, place in runs]
    rows = min(len(prompts), *map(len, columns))
    if not rows:
        return None
    tiles = [[sized(_opened(column[row])) for column in columns] for row in range(rows)]
    wide, high = (max(t.size[axis] for row in tiles for t in row) for axis in (0, 1))
    face, bold = font(max(14, wide // 13)), font(max(14, wide // 13), bold=True)
    labels = [wrap(prompt, face, 2 * wide, _LINES) for prompt in prompts[:rows]]
    left = _MARGIN + round(max(face.getlength(line) for label in labels for line in label)) + _GAP
    top = _MARGIN + round(1.6 * line_height(bold))
    width = left + len(columns) * (wide + _GAP) - _GAP + _MARGIN
    paper, pen = page(width, top + rows * (high + _GAP) - _GAP + _MARGIN)
    for column, (name, _) in enumerate(runs):
        head = wrap(name, bold, wide, 1)[0]
        pen.text((left + column * (wide + _GAP), _MARGIN), head, FAINT, bold)
    for row, lines in enumerate(labels):
        y = top + row * (high + _GAP)
        for column, tile in enumerate(tiles[row]):
            paste(paper, tile, (left + column * (wide + _GAP), y))
        y += (high - len(lines) * line_height(face)) // 2
        for number, line in enumerate(lines):
            pen.text((_MARGIN, y + number * line_height(face)), line, INK, face)
    paper.save(path)
    return path


def last_pictures(run: Path) -> list[Path]:
    """What a run kept of its last evaluation, in the order of the prompts."""
    kept = [*(RunFolder(run).samples / "strip").glob("*_*.png")]
    moments = sorted({path.stem.partition("_")[0] for path in kept})
    last = [path for path in kept if path.stem.startswith(f"{moments[-1]}_")] if moments else []
    return sorted(last, key=lambda path: int(path.stem.partition("_")[2]))


def _opened(path: Path) -> Image.Image:
    with Image.open(path) as picture:
        return picture.convert("RGB")
