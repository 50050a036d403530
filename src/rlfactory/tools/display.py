"""A run in a notebook: its scores, curves and samples as HTML with the pictures inside."""

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape

from rlfactory.report.sample_pairs import evaluated, main_score, samples_at
from rlfactory.run.folder import RunFolder
from rlfactory.utils.console import number

SHOWN = 8
"""How many samples of a language model the table has."""


def as_html(folder: RunFolder, before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """The path, the mean scores before and after training, the curves, and the newest grid of
    samples or table of texts.
    """
    grids = sorted(folder.samples.glob("eval_*.png"))
    parts = [f"<p><code>{escape(str(folder.path))}</code></p>", _scores(before, after)]
    for picture in [folder.curves, *grids[-1:]]:
        if picture.is_file():
            data = base64.b64encode(picture.read_bytes()).decode("ascii")
            source = f"data:image/png;base64,{data}"
            parts.append(f'<img alt="{picture.stem}" style="max-width:100%" src="{source}">')
    return "\n".join(part for part in [*parts, _texts(folder)] if part)


def _scores(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """A table of mean scores on the evaluation prompts; nothing where none was evaluated."""
    rows = [
        [name, number(before.get(name, math.nan)), number(score)] for name, score in after.items()
    ]
    return _table(["mean score", "before", "after"], rows)


def _texts(folder: RunFolder) -> str:
    """The first texts of the last evaluation, with the score that trains; nothing for images."""
    main = main_score(folder)
    samples = [s for i in evaluated(folder)[-1:] for s in samples_at(folder, i, main)]
    rows = [[prompt, s.text, number(s.score)] for prompt, s in samples if s.text is not None]
    return _table(["prompt", "completion", main], rows[:SHOWN])


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table of texts, which are escaped; nothing without rows."""
    lines = ["".join(f"<td{_STYLE}>{escape(cell)}</td>" for cell in row) for row in rows]
    head = "".join(f"<th{_STYLE}>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{line}</tr>" for line in [head, *lines])
    return f"<table>{body}</table>" if rows else ""


_STYLE = ' style="text-align:left;white-space:pre-wrap"'
"""Notebooks align cells to the right and fold spaces, which are part of a completion."""
