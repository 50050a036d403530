"""What came of a run: a table for the terminal and a page for the folder."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from rlfactory.run.atomic import write_text
from rlfactory.run.folder import RunFolder
from rlfactory.run.format import number
from rlfactory.run.metrics import Record
from rlfactory.run.scores import Scores
from rlfactory.run.statistics import Change, paired_change

_PHASES = ("sample", "score", "learn")


def changes(before: Scores, after: Scores) -> dict[str, dict[str, Change]]:
    """For each score the change over all prompts (`"all"`), then over each category."""
    if before.prompts != after.prompts:
        raise ValueError("before and after are not of the same prompts, so they make no pairs")
    table: dict[str, dict[str, Change]] = {}
    for name in [name for name in before.values if name in after.values]:
        old, new = before.values[name], after.values[name]
        rows = {"all": paired_change(old, new)}
        for kind, mask in before.parts().items():
            rows[kind] = paired_change(old[mask], new[mask])
        table[name] = rows
    return table


def summary_table(before: Scores, after: Scores) -> Table:
    """The changes with their 95 % paired intervals, bold where the interval leaves out zero."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="bold")
    table.add_column("score")
    for heading in ("before", "after", "change", "95 % interval", "n"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, rows in changes(before, after).items():
        for kind, change in rows.items():
            label = name if kind == "all" else f"  {kind}"
            first, second, difference, interval, count = _cells(change)
            shown = f"[bold]{difference}[/bold]" if change.is_clear else difference
            style = None if kind == "all" else "dim"
            table.add_row(label, first, second, shown, interval, count, style=style)
    for label, cells in _whole(before, after).items():
        table.add_row(label, *cells)
    return table


def write_summary(
    path: Path,
    *,
    before: Scores,
    after: Scores | None,
    metrics: Sequence[Record],
    advice: Sequence[str] = (),
) -> None:
    """Write a run folder's summary.md; `after` is None if the run stopped before it was known."""
    folder = RunFolder(path.parent)
    trained = sum("time/learn" in record for record in metrics)
    lines = [f"# {folder.path.absolute().name}", "", f"{trained} iterations of training.", ""]
    lines += _before_only(before) if after is None else markdown_table(before, after)
    if advice:
        lines += ["", "## Advice", "", *(f"- {line}" for line in advice)]
    lines += ["", "## Cost", "", *_cost(metrics)]
    lines += ["", "## Where to look", "", *(f"- {line}" for line in where_to_look(folder))]
    write_text(path, "\n".join(lines) + "\n")


def where_to_look(folder: RunFolder) -> list[str]:
    """A line for each thing in the folder that is there to be seen, and what to type next."""
    grids = sorted([*folder.samples.glob("eval_*.png"), *folder.samples.glob("eval_*.md")])
    checkpoints = sorted(p for p in folder.checkpoints.glob("*") if not p.name.startswith("."))
    things = [
        ("samples before", grids[0] if len(grids) > 1 else None),
        ("samples after" if len(grids) > 1 else "samples", grids[-1] if grids else None),
        ("the same prompts over training", folder.strip),
        ("the same prompts over training", folder.strip.with_suffix(".md")),
        ("curves", folder.curves),
        ("checkpoint", checkpoints[-1] if checkpoints else None),
    ]
    lines = [f"{name}: `{thing}`" for name, thing in things if thing and thing.exists()]
    return [
        *lines,
        f'more samples: `rlfactory sample {shlex.quote(str(folder.path))} --prompt "..."`',
    ]


def markdown_table(before: Scores, after: Scores) -> list[str]:
    """The lines of `summary_table` for a page."""
    lines = ["| score | before | after | change | 95 % interval | n |", "|---|" + "---:|" * 5]
    for name, rows in changes(before, after).items():
        for kind, change in rows.items():
            label = f"**{name}**" if kind == "all" else f"{name}, {kind}"
            lines.append(f"| {' | '.join([label, *_cells(change)])} |")
    for label, cells in _whole(before, after).items():
        lines.append(f"| {' | '.join([label, *cells])} |")
    note = "Change is the mean over the same prompts and noise; intervals are paired bootstraps."
    return [
        *lines,
        "",
        f"{note} Diversity is the mean pairwise distance between samples of a prompt.",
    ]


def _before_only(before: Scores) -> list[str]:
    lines = [f"| {name} | {number(mean)} |" for name, mean in before.means().items()]
    note = "The run stopped before it was evaluated again."
    return ["| score | before |", "|---|---:|", *lines, "", note]


def _cells(change: Change) -> tuple[str, str, str, str, str]:
    return (
        number(change.before),
        number(change.after),
        number(change.difference, sign=True),
        f"{number(change.low, sign=True)} … {number(change.high, sign=True)}",
        str(change.count),
    )


def _whole(before: Scores, after: Scores) -> dict[str, tuple[str, str, str, str, str]]:
    """What an evaluation has one number for, not one a sample."""
    pairs = {"diversity": (before.diversity, after.diversity), "KL a token": (before.kl, after.kl)}
    return {
        label: (number(old), number(new), number(new - old, sign=True), "", "")
        for label, (old, new) in pairs.items()
        if label == "diversity" or new == new
    }


def _cost(metrics: Sequence[Record]) -> list[str]:
    totals = {phase: _total(metrics, f"time/{phase}") for phase in _PHASES}
    whole = _total(metrics, "time/iteration") or sum(totals.values())
    lines = []
    if whole > 0:
        shares = ", ".join(f"{phase} {100 * t / whole:.0f} %" for phase, t in totals.items())
        lines.append(f"- time in iterations: {whole:.0f} s ({shares})")
    peaks = [peak for record in metrics if (peak := record.get("memory/peak_gb")) is not None]
    if peaks:
        lines.append(f"- peak memory: {max(peaks):.2f} GB")
    return lines or ["- nothing was measured"]


def _total(metrics: Sequence[Record], name: str) -> float:
    return sum(record.get(name) or 0.0 for record in metrics)
