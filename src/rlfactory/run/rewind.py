"""A run folder as it was at a checkpoint: what was logged and drawn later is made again."""

import re
from collections.abc import Iterator
from pathlib import Path

from rlfactory.run.atomic import is_unfinished
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import keep_lines


def rewind(folder: RunFolder, iteration: int, lines: int) -> int:
    """Keep `lines` of the metrics, no evaluation or picture of an iteration after this one, and no
    file that is not whole.

    Returns how many of the lines there are; fewer only if something else has changed the file.
    """
    for path in [*filter(is_unfinished, folder.path.rglob(".*"))]:
        path.unlink()
    for path in _dated(folder):
        if int(re.findall(r"\d+", path.name)[0]) > iteration:
            path.unlink()
    return keep_lines(folder.metrics, lines)


def _dated(folder: RunFolder) -> Iterator[Path]:
    """The files that bear an iteration; not those of `rlfactory evaluate`, which bear a date."""
    numbered = re.compile(r"(eval_)?\d{6,}(_\d+)?\.\w+")
    for place in (folder.evaluations, folder.samples, folder.samples / "strip"):
        yield from [path for path in place.glob("*.*") if numbered.fullmatch(path.name)]
