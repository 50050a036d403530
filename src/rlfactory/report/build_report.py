"""Build a report from groups of runs: rows with intervals, samples, comparisons between rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rlfactory.report.curves import curves
from rlfactory.report.group import Group, Member, distinct, following, union
from rlfactory.report.labels import better_sentence
from rlfactory.report.measure import before, measured, resolved
from rlfactory.report.read import ABSENT, DAMAGED, RunRecord
from rlfactory.report.report import (
    Cell,
    Comparison,
    Report,
    ReportRow,
    SampleImage,
    ScoreByCategory,
)
from rlfactory.report.sample_pairs import SamplePair, main_score, sample_pairs
from rlfactory.report.statistics import (
    MIN_RUNS,
    improvement_interval,
    interquartile_interval,
    interquartile_mean,
    mean_interval,
    paired_difference,
    probability_of_improvement,
)
from rlfactory.run.folder import RunFolder
from rlfactory.sweep.table import Column, TableInfo

INTERVAL = "A number is the mean over n seeds, ± half of its 95 % interval (Student's t)."
_NAMED = 5
NO_ENDS = (None, None)  # of an interval
_TEXTS = 4


def caveats(
    groups: Sequence[Group],
    columns: Sequence[Column],
    values: Sequence[Mapping[str, Sequence[object]]],
) -> list[str]:
    """Sentences about a report's rows; `values` has the numbers of each row by column."""
    members = [member for group in groups for member in group.members]
    damaged = {member.path: member.fault for member in members if member.state == DAMAGED}
    return [
        INTERVAL + better_sentence({column.label: column.better for column in columns}),
        *(f"Left out because it is damaged: {path} ({why})." for path, why in damaged.items()),
        *_unfinished(members),
        *_incomplete(groups, columns, values),
        *_repeated_seeds(groups),
    ]


def _unfinished(members: Sequence[Member]) -> Iterator[str]:
    states = {m.path.name: m.state for m in members if m.state not in ("done", DAMAGED, ABSENT)}
    if states:
        named = [f"{name} ({state})" for name, state in states.items()]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        yield f"Not counted because they are not done: {', '.join(named[:_NAMED])}{more}."


def _incomplete(
    groups: Sequence[Group],
    columns: Sequence[Column],
    values: Sequence[Mapping[str, Sequence[object]]],
) -> Iterator[str]:
    """Columns that only some of a row's runs have measured.

    Where no run of a row has, the row's reward simply measures something else.
    """
    for group, by_column in zip(groups, values, strict=True):
        short = [
            f"{column.label} {len(by_column[column.name])} of {len(group.counted)}"
            for column in columns
            if column.measure and 0 < len(by_column[column.name]) < len(group.counted)
        ]
        if short and not group.untrained:
            yield f"{group.name}: not all runs measured {', '.join(short)}."


def _repeated_seeds(groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        seeds = Counter(run.config["seed"] for run in group.runs if "seed" in run.config)
        for seed, count in seeds.items():
            if count > 1 and not group.untrained:
                yield f"{group.name}: {count} runs have seed {seed}: intervals are too narrow."


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
    """Build the report of groups, one row each.

    Args:
        notes: sentences that come before the caveats.
    """
    runs = [run for group in groups for run in group.runs]
    columns = [resolved(column, runs) for column in columns]
    values = [_values(group, columns) for group in groups]
    # a row's runs in any state; none for a row that was not trained
    members = [[] if group.untrained else group.members for group in groups]
    readable = [[m.run for m in own if m.run is not None] for own in members]
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
        images=sample_images(groups),
        texts=texts(groups),
        differences=differences,
        notes=[*notes, *caveats(groups, columns, values), *sentences],
        comparisons=comparisons(columns, by_name),
        by_category=scores_by_category(groups, columns),
    )


def _values(group: Group, columns: Sequence[Column]) -> Values:
    values: Values = {column.name: [] for column in columns}
    for member in group.counted:
        assert member.run is not None
        for column in columns:
            own = before(column) if group.untrained else column
            value = measured(member.stages, own)
            if value is not None:
                values[column.name].append((member.run.seed, column.scale * value))
    return values


def _row(group: Group, columns: Sequence[Column], values: Values) -> ReportRow:
    cells = {
        column.name: cell(group.claimed.get(column.name), [v for _, v in values[column.name]])
        for column in columns
    }
    trained = [] if group.untrained else group.counted
    steps = [_total(member, lambda run: run.iterations) for member in trained]
    passes = [_total(member, lambda run: run.last("nfe/total")) for member in trained]
    nfe = [count for count in passes if count is not None]
    return ReportRow(
        name=group.name,
        cells=cells,
        steps=max(map(int, filter(None, steps)), default=None),
        nfe=sum(nfe) / len(nfe) if nfe else None,
        status=group.status,
        note=group.note,
    )


def _total(member: Member, count: Callable[[RunRecord], float | None]) -> float | None:
    """A count summed over a run and the stages before it; None where one is unknown."""
    counts = [count(run) for run in member.stages]
    known = [n for n in counts if n is not None]
    return float(sum(known)) if len(known) == len(counts) else None


def comparisons(columns: Sequence[Column], rows: Mapping[str, Values]) -> list[Comparison]:
    """Compare every row with the first one that has numbers.

    A comparison for each column, and where there are several also one over all of them.
    """
    ranked = [column for column in columns if column.better in ("higher", "lower")]
    first = next((name for name, values in rows.items() if any(values.values())), None)
    if first is None:
        return []
    compared = []
    for name, values in rows.items():
        shared = [c for c in ranked if values[c.name] and rows[first][c.name]]
        if name == first or not shared:
            continue
        each = [_compare(column, name, values, first, rows[first]) for column in shared]
        compared += [c for c in each if c.difference is not None or c.probability is not None]
        chance = _improvement(shared, values, rows[first])
        if len(shared) > 1 and chance[0] is not None:
            compared.append(Comparison(name, first, "", None, None, None, 0, *chance))
    return compared


def _compare(column: Column, row: str, values: Values, other: str, others: Values) -> Comparison:
    by_seed, others_by_seed = dict(values[column.name]), dict(others[column.name])
    seeds = [seed for seed in by_seed if seed in others_by_seed]
    pairs = [by_seed[seed] for seed in seeds], [others_by_seed[seed] for seed in seeds]
    difference, interval = paired_difference(*pairs) if len(seeds) > 1 else NO_ENDS
    low, high = interval or NO_ENDS
    chance = _improvement([column], values, others)
    return Comparison(row, other, column.name, difference, low, high, len(seeds), *chance)


def _improvement(
    columns: Sequence[Column], values: Values, others: Values
) -> tuple[float | None, float | None, float | None]:
    """The probability of improvement with its interval; None below three runs of each."""
    signs = [-1.0 if column.better == "lower" else 1.0 for column in columns]
    ours, theirs = (
        [[sign * v for _, v in side[c.name]] for c, sign in zip(columns, signs, strict=True)]
        for side in (values, others)
    )
    if min(map(len, [*ours, *theirs])) < MIN_RUNS:
        return None, None, None
    interval = improvement_interval(ours, theirs) or NO_ENDS
    return float(probability_of_improvement(ours, theirs)), *interval


NO_CATEGORIES = ("mean", "diversity", "kl")
"""What else stands below `eval/NAME/`; the last two where a prompt set has the name of a score."""


def scores_by_category(groups: Sequence[Group], columns: Sequence[Column]) -> list[ScoreByCategory]:
    """The first score with categories of each prompt set, of all rows.

    Rows also have their scores before training, unless the table has rows for that.
    """
    runs = [run for group in groups for run in group.runs]
    found: dict[str, ScoreByCategory] = {}
    for column in columns:
        kind, _, score = column.measure.partition("/")
        prompt_set = score.rpartition("/")[0]
        names = categories(score, runs) if kind == "eval" and prompt_set not in found else []
        if names:
            found[prompt_set] = _of_score(score, column, names, groups)
    return [*found.values()]


def categories(score: str, runs: Iterable[RunRecord]) -> list[str]:
    """The categories that runs have measured a score in, in the order of the evaluation."""
    place = f"eval/{score}/"
    names = [n.removeprefix(place) for run in runs for n in run.series if n.startswith(place)]
    return [n for n in dict.fromkeys(names) if "/" not in n and n not in NO_CATEGORIES]


def _of_score(
    score: str, column: Column, names: Sequence[str], groups: Sequence[Group]
) -> ScoreByCategory:
    rows: dict[str, dict[str, Cell]] = {}
    has_before = any(group.untrained for group in groups)
    for group in groups:
        kinds = {group.name: "before" if group.untrained else "eval"}
        if not has_before:
            kinds = {f"{group.name}, before": "before", **kinds}
        rows |= {row: _cells(group, kind, score, column, names) for row, kind in kinds.items()}
    known = {row: cells for row, cells in rows.items() if any(c.n for c in cells.values())}
    return ScoreByCategory(column, [*names], known)


def _cells(
    group: Group, kind: str, score: str, column: Column, names: Sequence[str]
) -> dict[str, Cell]:
    """A row's numbers in each category, and over all prompts by the empty name."""
    measures = {name: Column(name, name, f"{kind}/{score}/{name}") for name in names}
    measures[""] = Column("", "", f"{kind}/{score}")
    cells = {}
    for name, measure in measures.items():
        values = [measured(member.stages, measure) for member in group.counted]
        cells[name] = cell(None, [column.scale * value for value in values if value is not None])
    return cells


def cell(paper: float | None, values: list[float]) -> Cell:
    """A row's numbers in a column: mean, interquartile mean, and their intervals."""
    if not values:
        return Cell(paper, None, None, None, 0, [])
    low, high = mean_interval(values) or NO_ENDS
    enough = len(values) >= MIN_RUNS
    iqm_low, iqm_high = (interquartile_interval(values) if enough else None) or NO_ENDS
    iqm = float(interquartile_mean(values))
    mean = sum(values) / len(values)
    return Cell(paper, mean, low, high, len(values), values, iqm, iqm_low, iqm_high)


def sample_images(groups: Iterable[Group]) -> list[SampleImage]:
    """Of each row's first run: the same prompts over training, and the last samples."""
    return [
        image
        for group in groups
        if group.runs and not group.untrained
        for image in _images_of(group.name, group.runs[0].path, group.runs[0].seed)
    ]


def _images_of(row: str, run: Path, seed: int) -> list[SampleImage]:
    folder = RunFolder(run)
    captions = {folder.strip: f"the same prompts over training, seed {seed}"}
    grids = {i: path for i, path in folder.shown().items() if path.suffix == ".png"}
    if grids:
        captions[grids[max(grids)]] = f"samples after {max(grids)} iterations, seed {seed}"
    return [SampleImage(row, text, path) for path, text in captions.items() if path.is_file()]


def texts(groups: Iterable[Group]) -> dict[str, list[SamplePair]]:
    """The first responses of each row's first run; none where they can't be read."""
    trained = [group for group in groups if group.runs and not group.untrained]
    shown = {group.name: _texts_of(RunFolder(group.runs[0].path)) for group in trained}
    return {row: pairs[:_TEXTS] for row, pairs in shown.items() if pairs}


def _texts_of(folder: RunFolder) -> list[SamplePair]:
    """The responses in a run's tables of samples, not chosen by anything."""
    pairs = sample_pairs(folder, main_score(folder))
    return [pair for pair in pairs if pair.before.text is not None and pair.after.text is not None]
