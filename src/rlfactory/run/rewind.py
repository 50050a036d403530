"""Restores a run folder as it was at a checkpoint."""

import re

from rlfactory.run.atomic_write import is_unfinished
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import keep_lines


def rewind(folder: RunFolder, iteration: int, lines: int) -> int:
    """Restore a run folder as it was at a checkpoint; later iterations are logged again.

    Removes evaluations and images of iterations after `iteration`, unfinished files, and all but
    the first `lines` of the metrics. Returns how many lines there are: fewer than `lines` only if
    something else has changed the file.
    """
    for path in [*filter(is_unfinished, folder.path.rglob(".*"))]:
        path.unlink()
    # those of `rlfactory evaluate` are named by a date, which this does not match
    numbered = re.compile(r"(eval_)?\d{6,}(_\d+)?\.\w+")
    places = [folder, *folder.evaluated_sets().values()]
    kept = [p for f in places for p in (f.evaluations, f.samples, f.samples / "strip")]
    for part in kept:
        for path in [path for path in part.glob("*.*") if numbered.fullmatch(path.name)]:
            if int(re.findall(r"\d+", path.name)[0]) > iteration:
                path.unlink()
    return keep_lines(folder.metrics, lines)
