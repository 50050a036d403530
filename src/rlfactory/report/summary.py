"""The results of a run: a table for the terminal, and summary.md in its folder."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
from rich.markup import escape
from rich.table import Table

from rlfactory.report.labels import evaluation_label
from rlfactory.report.statistics import Array, Change, bootstrap_interval, paired_change
from rlfactory.run.atomic_write import write_text
from rlfactory.run.checkpoint.find import all_checkpoints
from rlfactory.run.environment import read_environments
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import Record
from rlfactory.run.scores import Scores, SetPairs
from rlfactory.utils.console import clock, number, printable
from rlfactory.utils.data_files import read_shown
from rlfactory.utils.text import plural, table_lines

NO_INTERVAL = "–"
_PHASES = ("sample", "score", "learn")
_HEADS = ("score", "before", "after", "change", "95 % interval", "n")


def changes(before: Scores, after: Scores) -> dict[str, dict[str, Change]]:
    """For each score, the change over all prompts (`"all"`) and over each category."""
    if before.prompts != after.prompts:
        raise ValueError("before and after are not of the same prompts, so they are no pairs")
    table: dict[str, dict[str, Change]] = {}
    for name in [name for name in before.values if name in after.values]:
        old, new = before.by_prompt(name), after.by_prompt(name)
        rows = {"all": paired_change(old, new)}
        for kind, mask in before.category_masks().items():
            of_prompts = mask[: len(old)]
            rows[kind] = paired_change(old[of_prompts], new[of_prompts])
        table[name] = rows
    return table


def summary_table(pairs: SetPairs) -> Table:
    """The changes with their 95 % paired intervals, bold where the interval excludes zero.

    Those of each further prompt set stand below its name.
    """
    table = _empty_table(*_HEADS[1:])
    for name, (before, after) in pairs.items():
        if after is not None:
            _add_changes(table, before, after, _begin_set(table, name))
    return table


def means_table(evaluated: Mapping[str, Scores]) -> Table:
    """The means of one evaluation with their 95 % intervals over prompts.

    `evaluated` has the scores of each prompt set; the empty name is that of the run's own prompts.
    """
    table = _empty_table("mean", "95 % interval", "n")
    for prompt_set, scores in evaluated.items():
        indent = _begin_set(table, prompt_set)
        for name in scores.values:
            values = scores.by_prompt(name)
            table.add_row(f"{indent}{escape(printable(name))}", *_mean_cells(values))
            for kind, mask in scores.category_masks().items():
                cells = _mean_cells(values[mask[: len(values)]])
                kind = escape(printable(kind))
                table.add_row(f"{indent}  {kind}", *cells, style="dim")
    return table


def _empty_table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="bold")
    table.add_column("score")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _begin_set(table: Table, name: str) -> str:
    """Write a prompt set's name; returns the indent of its rows. The run's own have none."""
    if not name:
        return ""
    table.add_row(f"[bold]on {escape(printable(name))}[/bold]")
    return "  "


def _add_changes(table: Table, before: Scores, after: Scores, indent: str) -> None:
    for name, rows in changes(before, after).items():
        for kind, change in rows.items():
            label = escape(printable(name if kind == "all" else f"  {kind}"))
            first, second, difference, interval, count = change_cells(change)
            shown = f"[bold]{difference}[/bold]" if change.is_clear else difference
            style = None if kind == "all" else "dim"
            table.add_row(f"{indent}{label}", first, second, shown, interval, count, style=style)
    for label, cells in _single_numbers(before, after).items():
        table.add_row(f"{indent}{label}", *cells)


def _mean_cells(values: Array) -> tuple[str, str, str]:
    """The mean of one score a prompt, its interval, and how many were scored."""
    known = values[~np.isnan(values)]
    mean = float(known.mean()) if len(known) else float("nan")
    low, high = bootstrap_interval(known)
    interval = NO_INTERVAL if low != low else f"{number(low)} … {number(high)}"
    return number(mean), interval, str(len(known))


def write_summary(
    folder: RunFolder, pairs: SetPairs, metrics: Sequence[Record], advice: Sequence[str] = ()
) -> None:
    """Write a run's summary.md.

    Args:
        pairs: scores of the initial and of the final weights on each prompt set; None in the place
            of the latter if the run stopped before they were evaluated.
        metrics: the lines of metrics.jsonl.
        advice: messages about the run's health.
    """
    trained = sum("time/learn" in record for record in metrics)
    name = folder.path.absolute().name
    lines = [f"# {name}", "", f"{plural(trained, 'iteration')} of training.", ""]
    lines += score_sections(pairs)
    if advice:
        lines += ["", "## Advice", "", *(f"- {line}" for line in advice)]
    for title, facts in {"Cost": cost(metrics), "How it was made": provenance(folder)}.items():
        listed = [f"- {name}: {text}" for name, text in facts.items()]
        if listed or title == "Cost":
            lines += ["", f"## {title}", "", *(listed or ["- nothing was measured"])]
    lines += ["", "## Where to look", ""]
    links = [(name, file.relative_to(folder.path).as_posix()) for name, file in results(folder)]
    lines += [f"- [{name}]({quote(link)})" for name, link in links]
    lines.append(f"- more samples: `{_sample_command(folder)}`")
    write_text(folder.summary, "\n".join(lines) + "\n")


def where_to_look(folder: RunFolder) -> list[str]:
    """A line for each result in the folder that exists, and a command to type next."""
    lines = [f"{name}: {path}" for name, path in results(folder)]
    return [*lines, f"more samples: {_sample_command(folder)}"]


def results(folder: RunFolder) -> list[tuple[str, Path]]:
    """The result files that the folder has, by their descriptions."""
    grids = [*folder.shown().values()]
    checkpoints = all_checkpoints(folder.checkpoints)
    found = [
        ("everything on one page", folder.page),
        ("samples before", grids[0] if len(grids) > 1 else None),
        ("samples after" if len(grids) > 1 else "samples", grids[-1] if grids else None),
        ("the first of them, moving", grids[-1].with_suffix(".gif") if grids else None),
        ("the same prompts over training", folder.strip),
        ("the same prompts over training", folder.strip.with_suffix(".md")),
        ("curves", folder.curves),
        ("checkpoint", checkpoints[max(checkpoints)] if checkpoints else None),
        *(
            (f"samples on {n}", next(reversed(own.shown().values()), None))
            for n, own in folder.evaluated_sets().items()
            if n
        ),
    ]
    return [(name, path) for name, path in found if path and path.exists()]


def _sample_command(folder: RunFolder) -> str:
    if folder.objects.is_file():  # the command does not have what was in a Python caller's memory
        return "run.samples([...])"
    return f'rlfactory sample {shlex.quote(str(folder.path))} --prompt "..."'


def cost(metrics: Sequence[Record]) -> dict[str, str]:
    """What a run has cost in time and memory, by name, as far as it was measured."""
    facts = {}
    if metrics and (wall := metrics[-1].get("time")):
        facts["wall time"] = f"{clock(wall)} in all, with evaluations"

    def total(phase: str) -> float:
        return sum(record.get(f"time/{phase}") or 0.0 for record in metrics)

    totals = {phase: total(phase) for phase in _PHASES}
    seconds = total("iteration") or sum(totals.values())
    if seconds > 0:
        shares = ", ".join(f"{phase} {100 * t / seconds:.0f} %" for phase, t in totals.items())
        facts["time in iterations"] = f"{seconds:.0f} s ({shares})"
    peaks = [peak for record in metrics if (peak := record.get("memory/peak_gb")) is not None]
    if peaks:
        facts["peak memory"] = f"{max(peaks):.2f} GB"
    return facts


def provenance(folder: RunFolder) -> dict[str, str]:
    """What a run was made with: device, command, git commit and versions, as far as known."""
    kept = read_environments(folder.environment)
    facts = {}
    if kept:
        counts = [f"{row.processes} × " if row.processes > 1 else "" for row in kept]
        devices = [f"{count}{row.device}" for count, row in zip(counts, kept, strict=True)]
        facts["device"] = ", then ".join(dict.fromkeys(devices))
    if command := read_shown(folder.command).strip():
        facts["command"] = f"`{command}`"
    if commits := [row.commit for row in kept if row.commit]:
        note = " (+: with changes)" if any("+" in commit for commit in commits) else ""
        facts["git commit"] = ", then ".join(dict.fromkeys(commits)) + note
    if kept:
        facts["versions"] = ", ".join(f"{k} {v}" for k, v in kept[-1].versions.items())
    return facts


def markdown_table(before: Scores, after: Scores) -> list[str]:
    """`summary_table` as lines of Markdown: categories folded, with a note on what columns are."""
    table = changes(before, after)
    rows = [[f"**{name}**", *change_cells(own["all"])] for name, own in table.items()]
    rows += [[label, *cells] for label, cells in _single_numbers(before, after).items()]
    lines = table_lines("lrrrrr", _HEADS, rows)
    label = evaluation_label([before, after])
    note = f"Change is the mean over the same {label} and noise; intervals are paired bootstraps."
    if before.diversity == before.diversity:
        note += " Diversity is the mean pairwise distance between samples of a prompt."
    lines += ["", note]
    below = [
        [f"{name}, {kind}", *change_cells(change)]
        for name, own in table.items()
        for kind, change in own.items()
        if kind != "all"
    ]
    if below:
        lines += ["", "<details><summary>By category of prompts</summary>", ""]
        lines += [*table_lines("lrrrrr", _HEADS, below), "", "</details>"]
    return lines


def score_sections(pairs: SetPairs, heading: str = "##") -> list[str]:
    """The changes on each prompt set in Markdown, those of further sets below a heading."""
    lines = []
    for name, (before, after) in pairs.items():
        lines += ["", f"{heading} Scores on `{name}`", ""] if name else []
        lines += markdown_table(before, after) if after else _before_only(before)
    return lines


def _before_only(before: Scores) -> list[str]:
    lines = table_lines("lr", _HEADS[:2], [[n, number(m)] for n, m in before.means().items()])
    return [*lines, "", "The run stopped before it was evaluated again."]


def change_cells(change: Change) -> tuple[str, str, str, str, str]:
    """Before, after, difference, interval (a dash where a single pair has none) and count."""
    means = number(change.before), number(change.after), number(change.difference, sign=True)
    between = f"{number(change.low, sign=True)} … {number(change.high, sign=True)}"
    return *means, between if change.low == change.low else NO_INTERVAL, str(change.count)


def _single_numbers(before: Scores, after: Scores) -> dict[str, tuple[str, str, str, str, str]]:
    """The rows of results that are one number per evaluation, not one per sample."""
    # a divergence without the rounding errors of float32 log-probabilities, which have a sign
    kl = round(before.kl, 6) + 0.0, round(after.kl, 6) + 0.0
    pairs = {"diversity": (before.diversity, after.diversity), "KL a token": kl}
    return {
        label: (number(old), number(new), number(new - old, sign=True), "", "")
        for label, (old, new) in pairs.items()
        if old == old or new == new
    }
