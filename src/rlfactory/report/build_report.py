"""Build a report from groups of runs: rows with intervals, samples, comparisons between rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rlfactory.report.curves import curves
from rlfactory.report.labels import better_sentence
from rlfactory.report.measure import before, measured, resolved
from rlfactory.report.read import DAMAGED, RunRecord
from rlfactory.report.report import Cell, Report, ReportRow, SampleImage
from rlfactory.report.report_tables import difference_table, ours, spread_table
from rlfactory.report.run_groups import Group, distinct, following, union
from rlfactory.report.sample_pairs import SamplePair, main_score, sample_pairs
from rlfactory.report.statistics import (
    MIN_RUNS,
    improvement_interval,
    mean_interval,
    probability_of_improvement,
)
from rlfactory.report.text_table import NONE, TextTable, joined, titled
from rlfactory.run.folder import RunFolder
from rlfactory.sweep.table import Column, TableInfo
from rlfactory.utils.text import plural

INTERVAL = "A number is the mean over n seeds, ± half of its 95 % interval (Student's t)."
_NAMED = 5
_TEXTS = 4


def caveats(
    groups: Sequence[Group],
    columns: Sequence[Column],
    values: Sequence[Mapping[str, Sequence[object]]],
) -> list[str]:
    """Sentences about a report's rows; `values` has the numbers of each row by column."""
    members = [run for group in groups for run in group.members]
    damaged = {run.path: run.fault for run in members if run.status == DAMAGED}
    states = {m.path.name: m.status for m in members if m.is_read and m.status != "done"}
    found = [INTERVAL + better_sentence({column.label: column.better for column in columns})]
    found += [f"Left out because it is damaged: {path} ({why})." for path, why in damaged.items()]
    if named := [f"{name} ({state})" for name, state in states.items()]:
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        found.append(f"Not counted because they are not done: {', '.join(named[:_NAMED])}{more}.")
    for group, own in zip(groups, values, strict=True):
        found += [] if group.untrained else _of_row(group, columns, own)
    return found


def _of_row(
    group: Group, columns: Sequence[Column], values: Mapping[str, Sequence[object]]
) -> Iterator[str]:
    """Columns that only some of a row's runs have measured, and seeds that several have.

    Where no run of a row has measured one, the row's reward simply measures something else.
    """
    count = len(group.runs)
    short = [
        f"{column.label} {len(values[column.name])} of {count}"
        for column in columns
        if column.measure and 0 < len(values[column.name]) < count
    ]
    if short:
        yield f"{group.name}: not all runs measured {', '.join(short)}."
    seeds = Counter(run.config["seed"] for run in group.runs if "seed" in run.config)
    for seed, runs in seeds.items():
        if runs > 1:
            yield f"{group.name}: {runs} runs have seed {seed}: intervals are too narrow."


Values = dict[str, list[tuple[int, float]]]
"""By column, the seed and the scaled number of each run of a row."""


def build_report(
    title: str,
    about: TableInfo | None,
    columns: Sequence[Column],
    groups: Sequence[Group],
    *,
    notes: Sequence[str] = (),
) -> Report:
    """Build the report of groups, one row each; `notes` come before the caveats."""
    runs = [run for group in groups for run in group.runs]
    columns = [resolved(column, runs) for column in columns]
    values = [
        {c.name: _numbers(group, before(c) if group.untrained else c) for c in columns}
        for group in groups
    ]
    first_runs = {g.name: g.runs[0] for g in groups if g.runs and not g.untrained}
    # a row's runs in any state; none for a row that was not trained
    readable = [
        [] if group.untrained else [run for run in group.members if run.is_read] for group in groups
    ]
    configs = [[run.config for run in own] for own in readable]
    typed = [union([run.typed for run in own]) for own in readable]
    differences = distinct(configs, typed)
    brought = ", ".join(following(configs, typed))  # keys that differ and name no row
    rows = [_row(group, columns, own) for group, own in zip(groups, values, strict=True)]
    sentences = [f"Also differ, as the options bring them: {brought}."] if brought else []
    by_name = {group.name: own for group, own in zip(groups, values, strict=True)}
    return Report(
        title=title,
        about=about,
        columns=columns,
        rows=rows,
        curves=curves(groups, columns),
        images=[image for row, run in first_runs.items() for image in _images_of(row, run)],
        texts={row: pairs for row, run in first_runs.items() if (pairs := _texts_of(run.path))},
        notes=[*notes, *caveats(groups, columns, values), *sentences],
        tables=titled(
            {
                **category_tables(groups, columns),
                "Interquartile means": spread_table(rows, columns),
                "Against the first row": comparison_table(columns, by_name),
                "What differs": difference_table([row.name for row in rows], differences),
            }
        ),
    )


def _numbers(group: Group, column: Column) -> list[tuple[int, float]]:
    """The seed and the scaled number of each run of a row that has one."""
    found = [(run.seed, measured(run.stages, column)) for run in group.runs]
    return [(seed, column.scale * value) for seed, value in found if value is not None]


def _row(group: Group, columns: Sequence[Column], values: Values) -> ReportRow:
    trained = [] if group.untrained else [run.stages for run in group.runs]
    passes = [[run.last("nfe/total") for run in stages] for stages in trained]
    nfe = [sum(filter(None, counts)) for counts in passes if None not in counts]
    steps = max((sum(run.iterations for run in stages) for stages in trained), default=0)
    return ReportRow(
        name=group.name,
        cells={
            c.name: Cell(group.claimed.get(c.name), [v for _, v in values[c.name]]) for c in columns
        },
        steps=steps or None,
        nfe=sum(nfe) / len(nfe) if nfe else None,
        status=group.status,
        note=group.note,
    )


def comparison_table(columns: Sequence[Column], rows: Mapping[str, Values]) -> TextTable | None:
    """Every row compared with the first one that has numbers; None without any interval.

    A line for each column, and where there are several also one for all of them.
    """
    ranked = [column for column in columns if column.better in ("higher", "lower")]
    first = next((name for name, values in rows.items() if any(values.values())), "")
    lines: list[list[str]] = []
    strong = set()
    for name, values in rows.items():
        shared = [c for c in ranked if name != first and values[c.name] and rows[first][c.name]]
        for column in shared:
            cells, gains = _difference(column, values[column.name], rows[first][column.name])
            chance = _improvement([column], values, rows[first])
            if cells[1] != NONE or chance:
                strong |= {(len(lines), 4)} if gains else set()
                lines.append([name, first, column.label, *cells, *(chance or [NONE, NONE])])
        if len(shared) > 1 and (chance := _improvement(shared, values, rows[first])):
            lines.append([name, first, "all together", NONE, NONE, NONE, *chance])
    heads = ["row", "against", "column", "pairs", "difference", "95 % interval"]
    heads += ["probability of improvement", "95 % interval "]
    left = frozenset({"against", "column"})
    return TextTable(heads, lines, left, frozenset(strong)) if lines else None


def _difference(
    column: Column, ours: Sequence[tuple[int, float]], theirs: Sequence[tuple[int, float]]
) -> tuple[list[str], bool]:
    """How many seeds both have, the mean difference over them and its interval, from two seeds.

    Also whether the interval, of `MIN_RUNS` pairs or more, says that ours are better.
    """
    others = dict(theirs)
    differences = [value - others[seed] for seed, value in ours if seed in others]
    count, form = str(len(differences)), f"+.{column.digits}f"
    if (interval := mean_interval(differences)) is None:
        return [count, NONE, NONE], False
    is_better = interval[0] > 0 if column.better == "higher" else interval[1] < 0
    cells = [count, joined([float(np.mean(differences))], form), joined(interval, form)]
    return cells, is_better and len(differences) >= MIN_RUNS


def _improvement(columns: Sequence[Column], values: Values, others: Values) -> list[str]:
    """The probability of improvement with its interval; empty below three runs of each."""
    signs = [-1.0 if column.better == "lower" else 1.0 for column in columns]
    ours, theirs = (
        [[sign * v for _, v in side[c.name]] for c, sign in zip(columns, signs, strict=True)]
        for side in (values, others)
    )
    if min(map(len, [*ours, *theirs])) < MIN_RUNS:
        return []
    chance = float(probability_of_improvement(ours, theirs))
    return [f"{chance:.2f}", joined(improvement_interval(ours, theirs) or (), ".2f")]


NO_CATEGORIES = ("mean", "diversity", "kl")
"""What else stands below `eval/NAME/`; the last two where a prompt set has the name of a score."""


def category_tables(groups: Sequence[Group], columns: Sequence[Column]) -> dict[str, TextTable]:
    """The table of the first score with categories of each prompt set, by its title.

    Rows also have their scores before training, unless the table has rows for that.
    """
    runs = [run for group in groups for run in group.runs]
    has_before = any(group.untrained for group in groups)
    moments = []
    for group in groups:
        if group.untrained or not has_before:
            name = group.name if group.untrained else f"{group.name}, before"
            moments.append((name, group, "before"))
        if not group.untrained:
            moments.append((group.name, group, "eval"))
    tables: dict[str, TextTable] = {}
    seen = set()
    for column in columns:
        kind, _, score = column.measure.partition("/")
        prompt_set = score.rpartition("/")[0]
        names = categories(score, runs) if kind == "eval" and prompt_set not in seen else []
        if names:
            seen.add(prompt_set)
            lines: list[list[str]] = []
            for row, group, moment in moments:
                measures = [f"{moment}/{score}/{name}" for name in names] + [f"{moment}/{score}"]
                own = [_numbers(group, replace(column, measure=measure)) for measure in measures]
                cells = [Cell(None, [value for _, value in values]) for values in own]
                lines += [[row, *(ours(c, column) for c in cells)]] if any(own) else []
            title = f"{column.label} by category of prompts"
            tables[title] = TextTable(["row", *names, "all"], lines)
    return tables


def categories(score: str, runs: Iterable[RunRecord]) -> list[str]:
    """The categories that runs have measured a score in, in the order of the evaluation."""
    place = f"eval/{score}/"
    names = [n.removeprefix(place) for run in runs for n in run.series if n.startswith(place)]
    return [n for n in dict.fromkeys(names) if "/" not in n and n not in NO_CATEGORIES]


def _images_of(row: str, run: RunRecord) -> list[SampleImage]:
    """The same prompts over training, and the last samples."""
    folder = RunFolder(run.path)
    shown = {folder.strip: "the same prompts over training"}
    grids = [(i, path) for i, path in folder.shown().items() if path.suffix == ".png"]
    shown |= {path: f"samples after {plural(i, 'iteration')}" for i, path in grids[-1:]}
    named = {path: f"{text}, seed {run.seed}" for path, text in shown.items() if path.is_file()}
    return [SampleImage(row, text, path) for path, text in named.items()]


def _texts_of(run: Path) -> list[SamplePair]:
    """The first responses in a run's tables of samples, not chosen by anything."""
    pairs = sample_pairs(RunFolder(run), main_score(RunFolder(run)))
    return [p for p in pairs if None not in (p.before.text, p.after.text)][:_TEXTS]
