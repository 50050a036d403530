"""The results of a run: tables of its scores, and summary.md in its folder."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np

from rlfactory.report.labels import better_sentence, evaluation_label
from rlfactory.report.statistics import Array, Change, bootstrap_interval, paired_change
from rlfactory.report.text_table import NONE, Section, TextTable, markdown_sections
from rlfactory.run.atomic_write import write_text
from rlfactory.run.checkpoint.find import all_checkpoints
from rlfactory.run.environment import read_environments
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import Record
from rlfactory.run.scores import Scores, SetPairs
from rlfactory.utils.console import clock, number
from rlfactory.utils.data_files import read_shown
from rlfactory.utils.text import fenced, plain, plural

_PHASES = ("sample", "score", "learn")
_HEADS = ["score", "before", "after", "change", "95 % interval", "n"]
_BY_CATEGORY = "By category of prompts"


def changes(before: Scores, after: Scores) -> dict[str, dict[str, Change]]:
    """For each score, the change over all prompts (`"all"`) and over each category."""
    if before.prompts != after.prompts:
        raise ValueError("before and after are not of the same prompts, so they are no pairs")
    table: dict[str, dict[str, Change]] = {}
    for name in [name for name in before.values if name in after.values]:
        old, new = before.by_prompt(name), after.by_prompt(name)
        masks = {kind: mask[: len(old)] for kind, mask in before.category_masks().items()}
        by_kind = {kind: paired_change(old[mask], new[mask]) for kind, mask in masks.items()}
        table[name] = {"all": paired_change(old, new), **by_kind}
    return table


def score_sections(pairs: SetPairs) -> list[Section]:
    """The changes on each prompt set with their 95 % paired intervals, then those by category.

    A change whose interval excludes zero stands out.
    """
    found = []
    for name, (before, after) in pairs.items():
        if after is None:
            found += mean_sections({name: before})
            continue
        table = changes(before, after)
        whole = _change_table({score: own.pop("all") for score, own in table.items()})
        kinds = {f"{score}, {k}": c for score, own in table.items() for k, c in own.items()}
        label = evaluation_label([before, after])
        note = (
            f"Change is the mean over the same {label} and noise; intervals are paired bootstraps,"
            " and a change that stands out has one that excludes 0."
        )
        if before.diversity == before.diversity:
            note += " Diversity is the mean pairwise distance between samples of a prompt."
        note += better_sentence({name: before.better.get(name, "") for name in table})
        whole.lines.extend(_single_numbers(before, after))
        found.append(Section(f"Scores on {name or label}", whole, note))
        if kinds:
            found.append(Section(_BY_CATEGORY, _change_table(kinds), folded=True))
    return found


def mean_sections(evaluated: Mapping[str, Scores]) -> list[Section]:
    """The means of one evaluation with their 95 % intervals over prompts, then by category.

    `evaluated` has the scores of each prompt set; the empty name is that of the run's own prompts.
    """
    found = []
    for name, scores in evaluated.items():
        by_prompt = {score: scores.by_prompt(score) for score in scores.values}
        whole = [[score, *_mean_cells(values)] for score, values in by_prompt.items()]
        kinds = [
            [f"{score}, {kind}", *_mean_cells(values[mask[: len(values)]])]
            for score, values in by_prompt.items()
            for kind, mask in scores.category_masks().items()
        ]
        heads = ["score", "mean", "95 % interval", "n"]
        title = f"Scores on {name or evaluation_label([scores])}"
        found.append(Section(title, TextTable(heads, whole), "Evaluated once."))
        if kinds:
            found.append(Section(_BY_CATEGORY, TextTable(heads, kinds), folded=True))
    return found


def _change_table(named: Mapping[str, Change]) -> TextTable:
    lines = [
        [name, number(c.before), number(c.after), *difference_cells(c)] for name, c in named.items()
    ]
    at = _HEADS.index("change")
    strong = frozenset((i, at) for i, change in enumerate(named.values()) if change.is_clear)
    return TextTable(_HEADS, lines, strong=strong)


def _mean_cells(values: Array) -> tuple[str, str, str]:
    """The mean of one score a prompt, its interval, and how many were scored."""
    known = values[~np.isnan(values)]
    mean = float(known.mean()) if len(known) else float("nan")
    return number(mean), _interval_text(*bootstrap_interval(known)), str(len(known))


def difference_cells(change: Change) -> list[str]:
    """The difference, its interval and the number of pairs."""
    interval = _interval_text(change.low, change.high, sign=True)
    return [number(change.difference, sign=True), interval, str(change.count)]


def _interval_text(low: float, high: float, *, sign: bool = False) -> str:
    """The ends of an interval; a dash where there is none, as of a single pair."""
    return NONE if low != low else f"{number(low, sign=sign)} … {number(high, sign=sign)}"


def write_summary(
    folder: RunFolder, pairs: SetPairs, metrics: Sequence[Record], advice: Sequence[str] = ()
) -> None:
    """Write a run's summary.md; `advice` are messages about the run's health."""
    trained = sum("time/learn" in record for record in metrics)
    name = folder.path.absolute().name
    lines = [f"# {plain(name)}", "", f"{plural(trained, 'iteration')} of training."]
    lines += markdown_sections(score_sections(pairs))
    if advice:
        lines += ["", "## Advice", "", *(f"- {line}" for line in advice)]
    for title, facts in {"Cost": cost(metrics), "How it was made": provenance(folder)}.items():
        listed = [f"- {name}: {text}" for name, text in facts.items()]
        if listed or title == "Cost":
            lines += ["", f"## {title}", "", *(listed or ["- nothing was measured"])]
    links = [(name, file.relative_to(folder.path).as_posix()) for name, file in results(folder)]
    lines += ["", "## Where to look", "", *(f"- [{name}]({quote(link)})" for name, link in links)]
    lines.append(f"- more samples: {fenced(_sample_command(folder))}")
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
    """The cost of a run in time and memory, by name, as far as it was measured."""
    facts = {}
    if metrics and (wall := metrics[-1].get("time")):
        facts["wall time"] = f"{clock(wall)} in all, with evaluations"
    names = (*_PHASES, "iteration")
    totals = {name: sum(record.get(f"time/{name}") or 0.0 for record in metrics) for name in names}
    seconds = totals.pop("iteration") or sum(totals.values())
    if seconds > 0:
        shares = ", ".join(f"{phase} {100 * t / seconds:.0f} %" for phase, t in totals.items())
        facts["time in iterations"] = f"{seconds:.0f} s ({shares})"
    peaks = [peak for record in metrics if (peak := record.get("memory/peak_gb")) is not None]
    if peaks:
        facts["peak memory"] = f"{max(peaks):.2f} GB"
    return facts


def provenance(folder: RunFolder) -> dict[str, str]:
    """The origin of a run: device, command, git commit and versions, as far as known."""
    kept = read_environments(folder.environment)
    facts = {}
    if kept:
        counts = [f"{row.processes} × " if row.processes > 1 else "" for row in kept]
        devices = [f"{count}{row.device}" for count, row in zip(counts, kept, strict=True)]
        facts["device"] = ", then ".join(dict.fromkeys(devices))
    if command := read_shown(folder.command).strip():
        facts["command"] = fenced(command)
    if commits := [row.commit for row in kept if row.commit]:
        note = " (+: with changes)" if any("+" in commit for commit in commits) else ""
        facts["git commit"] = ", then ".join(dict.fromkeys(commits)) + note
    if kept:
        facts["versions"] = ", ".join(f"{k} {v}" for k, v in kept[-1].versions.items())
    return facts


def _single_numbers(before: Scores, after: Scores) -> list[list[str]]:
    """The rows of results that are one number per evaluation, not one per sample."""
    pairs = {"diversity": (before.diversity, after.diversity), "KL a token": (before.kl, after.kl)}
    lines = []
    for label, (old, new) in pairs.items():
        # without the rounding errors of float32, which have a sign
        *ends, change = (round(value, 6) + 0.0 for value in (old, new, new - old))
        if old == old or new == new:
            lines.append([label, *map(number, ends), number(change, sign=True), "", ""])
    return lines
