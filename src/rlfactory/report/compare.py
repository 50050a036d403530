"""Compare two runs: configurations, evaluation scores, cost, and samples of the same prompts."""

import math
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlfactory.config.frozen import differences
from rlfactory.config.problems import PlanError, Problem
from rlfactory.report.discover import is_run
from rlfactory.report.image_grid import sheet
from rlfactory.report.labels import evaluation_label
from rlfactory.report.read import DAMAGED, RunRecord, read_run
from rlfactory.report.run_groups import QUIET, distinct, shown, telling
from rlfactory.report.sample_pairs import Sample, evaluated, readable_rows, samples_at
from rlfactory.report.statistics import paired_change
from rlfactory.report.summary import difference_cells
from rlfactory.report.text_table import (
    NONE,
    Section,
    Terminal,
    TextTable,
    markdown_sections,
    short_count,
    titled,
)
from rlfactory.run.atomic_write import write_text
from rlfactory.run.folder import RunFolder
from rlfactory.run.scores import Scores, read_sets
from rlfactory.utils.console import clock, number
from rlfactory.utils.data_files import FileError
from rlfactory.utils.text import plain

_TELLTALE = 2  # keys that say what a run is
FILE, IMAGE = "compare.md", "compare.png"
HEADS = ("A", "B")
_ROWS = 6


@dataclass(frozen=True)
class Side:
    """A run with its first and its last evaluation.

    `letter` heads its columns, since names are too long for them; `differs` is the configuration in
    which it differs from the other run, in a few words; `sets` has the scores before and after on
    each prompt set, the empty name being that of the run's own prompts.
    """

    letter: str
    name: str
    differs: str
    run: RunRecord
    sets: dict[str, tuple[Scores, Scores]]

    @property
    def after(self) -> Scores | None:
        """The last scores on the run's own prompts."""
        return self.sets[""][1] if "" in self.sets else None

    def last_samples(self, score: str) -> dict[str, Sample]:
        """The samples of the last evaluation's first prompts."""
        folder = RunFolder(self.run.path)
        shown = [samples_at(folder, i, score)[:_ROWS] for i in evaluated(folder)[-1:]]
        return {prompt: sample for samples in shown for prompt, sample in samples}


Pair = tuple[Side, Side]


def read_pair(first: Path, second: Path) -> Pair:
    """Read both runs; PlanError where one is not a run or they make different kinds of samples."""
    problems = []
    for path in (path for path in (first, second) if not is_run(path)):
        fix = f"rlfactory report {shlex.quote(str(path))}" if path.is_dir() else ""
        problems.append(Problem(str(path), "is not a run folder", fix))
    if problems:
        raise PlanError(problems)
    # with as many parent folders as it takes to distinguish them
    shared = os.path.commonpath([path.absolute().parent for path in (first, second)])
    names = [path.absolute().relative_to(shared).as_posix() for path in (first, second)]
    runs = _read(first), _read(second)
    kinds = [run.media for run in runs]
    if None not in kinds and kinds[0] != kinds[1]:
        message = f"{first} makes {kinds[0]} and {second} {kinds[1]}: they can't be compared"
        raise PlanError([Problem("compare", message)])
    one, other = map(_side, HEADS, names, _differing(*runs), runs)
    return one, other


def print_comparison(pair: Pair) -> None:
    """Print the tables and notes of a comparison."""
    terminal = Terminal()
    terminal.heading(_title(pair))
    terminal.sections(sections(pair))
    terminal.notes([*notes(pair)])


def write_comparison(pair: Pair, folder: Path) -> list[Path]:
    """Write compare.md, and compare.png where both runs kept images of the same prompts."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"# {plain(_title(pair))}", *markdown_sections(sections(pair))]
    lines += ["", *(f"- {plain(note)}" for note in notes(pair))]
    image = _draw_samples(pair, folder / IMAGE)
    if image is not None:
        lines += ["", "## Samples", "", f"![the same prompts, a column per run]({image.name})"]
    write_text(folder / FILE, "\n".join(lines) + "\n")
    return [folder / FILE, *([image] if image is not None else [])]


def sections(pair: Pair) -> list[Section]:
    """The tables that are not empty."""
    label = evaluation_label([side.after for side in pair if side.after is not None])
    changed = differences(pair[0].run.config, pair[1].run.config)
    hidden, heads = {*QUIET} - {"seed"}, ["key", *HEADS]
    lines = [[k, shown(a), shown(b)] for k, a, b in changed if k.partition(".")[0] not in hidden]
    tables = {
        "Configuration": TextTable(heads, lines, frozenset(heads)) if lines else None,
        f"Scores on {label}": _scores(pair),
        "Cost": _cost(pair),
        "Responses": _responses(pair),
    }
    return titled(tables)


def notes(pair: Pair) -> Iterator[str]:
    """Sentences below the tables."""
    first, second = pair
    if not differences(first.run.config, second.run.config):
        yield "The configurations are the same."
    if first.after and second.after and first.after.prompts == second.after.prompts:
        yield "The intervals are 95 % bootstrap intervals of the difference, paired by prompt."
    elif first.after and second.after:
        yield "The evaluation prompts differ, so there are no pairs and no intervals."
    for side in pair:
        if side.run.status != "done":
            yield f"{side.name} is not done ({side.run.status})."


def _read(path: Path) -> RunRecord:
    if (run := read_run(path)).status == DAMAGED:
        raise PlanError([Problem(str(path), f"is damaged: {run.fault}")])
    return run


def _side(letter: str, name: str, differs: str, run: RunRecord) -> Side:
    folder = RunFolder(run.path)
    sets = {of: (own[min(own)], own[max(own)]) for of, own in read_sets(folder).items()}
    try:
        for path in sorted(folder.evaluations.glob("*.json"))[-1:]:
            Scores.load(path)  # an earlier evaluation would stand in its place
    except FileError as error:
        message = f"its evaluations can't be read: {error}"
        raise PlanError([Problem(str(run.path), message)]) from error
    return Side(letter, name, differs, run, sets)


def _differing(first: RunRecord, second: RunRecord) -> tuple[str, str]:
    """The keys that tell two runs apart, in a few words each; empty where they differ in no key."""
    found = distinct([[first.config], [second.config]], [first.typed, second.typed])
    if not found and first.seed != second.seed:
        return f"seed={first.seed}", f"seed={second.seed}"
    telltale = [*telling(found).items()][:_TELLTALE]
    one, other = (", ".join(f"{key}={values[i]}" for key, values in telltale) for i in (0, 1))
    return one, other


def _title(pair: Pair) -> str:
    """The runs that the letters stand for: `A: nft0 (algo=nft) and B: ...`."""
    differs = [f" ({side.differs})" if side.differs else "" for side in pair]
    return " and ".join(f"{s.letter}: {s.name}{d}" for s, d in zip(pair, differs, strict=True))


def _draw_samples(pair: Pair, path: Path) -> Path | None:
    """The images of the same prompts side by side, with the first score that both runs have."""
    first, second = pair[0].after, pair[1].after
    if first is None or second is None or first.prompts != second.prompts:
        return None
    name = next((name for name in first.values if name in second.values), "")
    kept = [side.last_samples(name) for side in pair]
    prompts = [p for p in kept[0] if all(p in own and own[p].image for own in kept)]
    files = [[image for own in kept if (image := own[p].image)] for p in prompts]
    rows = dict(readable_rows(files))
    if not rows:
        return None
    shown = [prompts[row] for row in rows]
    heads = [f"{side.letter}: {side.differs or side.name}" for side in pair]
    scores = [[own[prompt].score for own in kept] for prompt in shown] if name else None
    sheet([*rows.values()], path, labels=shown, heads=heads, scores=scores)
    return path


def _scores(pair: Pair) -> TextTable | None:
    """Each score that both have, before and after training, and the difference after training.

    Those on further prompt sets are named `SET/SCORE`.
    """
    heads = [f"{head} {moment}" for head in HEADS for moment in ("before", "after")]
    heads = ["score", *heads, "B - A", "95 % interval", "n"]
    one, other = (side.sets for side in pair)
    shared = {name: (*one[name], *other[name]) for name in one if name in other}
    lines = [line for name, scores in shared.items() for line in _score_lines(name, scores)]
    return TextTable(heads, lines) if lines else None


def _score_lines(prompt_set: str, scores: Sequence[Scores]) -> Iterator[list[str]]:
    """The lines of a prompt set; `scores` are those before and after of the first, the second."""
    _, first, _, second = scores
    prefix = f"{prompt_set}/" if prompt_set else ""
    for name in [name for name in first.values if name in second.values]:
        means = [own.means().get(name, math.nan) for own in scores]
        difference = [number(second.means()[name] - first.means()[name], sign=True), NONE, NONE]
        if first.prompts == second.prompts:
            change = paired_change(first.by_prompt(name), second.by_prompt(name))
            difference = difference_cells(change)
        yield [f"{prefix}{name}", *map(number, means), *difference]


def _cost(pair: Pair) -> TextTable:
    rows = {
        "status": [side.run.status for side in pair],
        "iterations": [str(side.run.iterations) for side in pair],
    }
    last: dict[str, tuple[str, Callable[[float], str]]] = {
        "time": ("time", clock),
        "NFE": ("nfe/total", short_count),
        "KL to the reference": ("kl/reference", number),
    }
    for name, (metric, write) in last.items():
        values = [side.run.last(metric) for side in pair]
        rows[name] = [NONE if value is None else write(value) for value in values]
    kept = [[name, *values] for name, values in rows.items() if {*values} != {NONE}]
    return TextTable(["", *HEADS], kept)


def _responses(pair: Pair) -> TextTable | None:
    """The last responses of both to the prompts that they share."""
    first, second = (side.last_samples("") for side in pair)
    texts = [[p, first[p].text or "", second[p].text or ""] for p in first if p in second]
    lines = [line for line in texts if all(line[1:])]
    heads = ["prompt", *HEADS]
    return TextTable(heads, lines, frozenset(heads)) if lines else None
