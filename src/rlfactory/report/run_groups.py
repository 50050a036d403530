"""Group runs into the rows of a table: by a sweep's rows, or those that differ only in the seed;
and the configuration keys in which rows differ.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from rlfactory.config.frozen import IGNORED
from rlfactory.config.frozen import format_value as typed
from rlfactory.report.labels import run_choices
from rlfactory.report.read import RunRecord, read_run
from rlfactory.sweep.table import Job, Row, Table
from rlfactory.utils.dotted_keys import leaves

Config = Mapping[str, Any]
QUIET = (*IGNORED, "seed", "logger", "checkpoint", "trust")
"""Keys that do not describe an experiment."""
WITHOUT_EFFECT = (
    *("hardware", "scoring", "guard", "prompt_cache", "max_minutes"),
    *("evaluation.every", "evaluation.preview_every", "evaluation.grid"),
)
"""Keys, and groups of keys, in which runs of one row may differ: they change no result."""
ABSENT_VALUE = "–"
"""The value of a key that a row has not."""
_LONGEST = 60


def flat(config: Config) -> dict[str, str]:
    """Every leaf key that can change a result, with its value as it is typed."""
    kept = {key: value for key, value in config.items() if key not in QUIET}
    if kept.get("begin_from"):
        # without the seed: runs of other seeds began with the checkpoint of theirs
        kept["begin_from"] = re.sub(r"-s\d+$", "", Path(str(kept["begin_from"])).name)
    return {
        key: shown(v) for key, v in leaves(kept, targets=True) if not _is_in(key, WITHOUT_EFFECT)
    }


Typed = frozenset[str] | None
"""The keys that were typed for the runs of a row; None where that is unknown."""


def distinct(
    rows: Sequence[Sequence[Config]], typed: Sequence[Typed] | None = None
) -> dict[str, list[str]]:
    """The keys in which rows differ, each with a value per row.

    A row whose own configurations differ has all of their values. Where rows chose different
    options, keys follow from them: a key that differs only between rows of different options is
    left out, unless it was typed. Where it is unknown what was typed, only keys of the chosen group
    itself are. `rows` has the configurations of each row's runs, `typed` what was typed for it.
    """
    filled = [row for row in rows if row]
    of_rows = zip(rows, typed or [None] * len(rows), strict=True)
    known = union([keys for row, keys in of_rows if row])
    choices = {g: v for g, v in _choices(filled).items() if len({*v}) > 1}
    roots = {g: values for g, values in choices.items() if known is not None and g in known}
    if "experiment" not in roots:
        choices.pop("experiment", None)  # a bundle of choices, which are listed themselves
    options = [*zip(*roots.values(), strict=True)] or [()] * len(filled)
    differing = {g: v for g, v in choices.items() if g in roots or _differ(v, options)}
    # choosing a group's option is not typing its keys
    groups = {group for row in filled for config in row for group in config.get("choices", {})}
    flats = [[flat(config) for config in row] for row in filled]
    for key in dict.fromkeys(key for row in flats for config in row for key in config):
        values = [_values(key, row) for row in flats]
        own = choices.get(key.partition(".")[0], [""] * len(filled))
        same_options = [*zip(options, own, strict=True)]
        is_typed = len({*values}) > 1 and known is not None and _is_in(key, known - groups)
        if key not in differing and (is_typed or _differ(values, same_options)):
            differing[key] = values
    places = [*accumulate(map(bool, rows), initial=0)]  # among the rows with configurations
    return {
        key: [values[at] if row else ABSENT_VALUE for row, at in zip(rows, places, strict=False)]
        for key, values in differing.items()
    }


def following(rows: Sequence[Sequence[Config]], typed: Sequence[Typed]) -> list[str]:
    """The keys that differ between rows as their options bring them; nobody typed these."""
    named = distinct(rows, typed)
    return [key for key in distinct(rows) if key not in named]


def shown(value: object) -> str:
    """A value as it is typed, lists without spaces, cut to 60 letters."""
    if isinstance(value, list):
        value = "[" + ",".join(typed(item) for item in value) + "]"
    text = " ".join(typed(value).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _choices(rows: Sequence[Sequence[Config]]) -> dict[str, list[str]]:
    """The options chosen of each group, a value a row."""
    of = [[config.get("choices", {}) for config in row] for row in rows]
    groups = dict.fromkeys(group for row in of for choices in row for group in choices)
    shown = [group for group in groups if group not in (*QUIET, *WITHOUT_EFFECT)]
    return {group: [_values(group, row) for row in of] for group in shown}


def union(typed: Sequence[Typed]) -> Typed:
    """All keys that were typed; None where it is unknown of a row."""
    known = [keys for keys in typed if keys is not None]
    return frozenset().union(*known) if len(known) == len(typed) else None


def _is_in(key: str, chosen: Iterable[str]) -> bool:
    """Whether a key, or a mapping that holds it, is among the chosen ones."""
    return any(key == word or key.startswith(f"{word}.") for word in chosen)


def _values(key: str, configs: Sequence[Mapping[str, Any]]) -> str:
    values = dict.fromkeys(str(config.get(key, ABSENT_VALUE)) for config in configs)
    return ", ".join(values) or ABSENT_VALUE


def _differ(values: Sequence[str], options: Sequence[object]) -> bool:
    """Whether values differ among rows with the same options."""
    return len({*zip(options, values, strict=True)}) > len({*options})


_FIRST = ("algo", "model", "reward", "prompts", "regularizer", "dynamics")
"""The keys that a row is named by before all others."""
_NAMED = 4
"""Keys in a row's name, unless more are needed to tell the rows apart."""


@dataclass(frozen=True)
class Group:
    """A row with its runs.

    Where `untrained` the row is the model before training: its numbers are the first evaluations of
    these runs.
    """

    name: str
    members: list[RunRecord]
    claimed: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    untrained: bool = False

    @property
    def runs(self) -> list[RunRecord]:
        """The runs that are done."""
        return [run for run in self.members if run.status == "done"]

    @property
    def status(self) -> str:
        """How many members are in which state."""
        if not self.members:
            return "published" if self.claimed else "not run"
        if self.untrained:
            return "before training"
        states = Counter(run.status for run in self.members)
        return ", ".join(f"{n} {state}" for state, n in states.items())


def groups_of_table(table: Table, folder: Path) -> list[Group]:
    """Group the runs of a sweep; a row whose runs vary in more than the seed becomes several."""
    members = {job.name: read_run(folder / job.folder) for job in table.jobs}
    return [group for row in table.rows for group in _groups_of_row(row, table.jobs, members)]


def _groups_of_row(row: Row, jobs: Sequence[Job], members: Mapping[str, RunRecord]) -> list[Group]:
    by_name = {job.name: job for job in jobs}
    own = [job for job in jobs if job.row == row.name]
    untrained = not own and row.before is not None
    if untrained:
        firsts = [_stages(job, by_name)[0] for job in jobs if job.row == row.before]
        own = [*{job.name: job for job in firsts}.values()]
    continued = {job.after for job in own}
    by_axes: dict[str, list[RunRecord]] = {}
    for job in [job for job in own if job.name not in continued]:
        *earlier, last = (members[stage.name] for stage in _stages(job, by_name))
        run = replace(last, earlier=tuple(stage for stage in earlier if stage.is_read))
        by_axes.setdefault(_axes_text(job.axes), []).append(run)
    if len(by_axes) < 2 or untrained:
        runs = [run for same in by_axes.values() for run in same]
        return [Group(row.name, runs, row.claimed, row.note, untrained)]
    named = {f"{row.name}, {axes}": same for axes, same in by_axes.items()}
    return [Group(name, same, row.claimed, row.note) for name, same in named.items()]


def _axes_text(axes: Mapping[str, Any]) -> str:
    """The values that distinguish a run from others of its row, rounded for a search's trial."""
    varied = {key: value for key, value in axes.items() if key not in ("seed", "stage", "trial")}
    if "trial" not in axes:
        return ", ".join(f"{key}={shown(value)}" for key, value in varied.items())
    short = [(".".join(key.split(".")[-2:]), value) for key, value in varied.items()]
    values = (f"{k} {f'{v:.3g}' if isinstance(v, float) else shown(v)}" for k, v in short)
    return f"trial {axes['trial']}: {', '.join(values)}"


def _stages(job: Job, by_name: Mapping[str, Job]) -> list[Job]:
    """A job behind those whose weights it began with, the first stage first."""
    before = by_name.get(job.after or "")
    return [*(_stages(before, by_name) if before is not None else []), job]


def groups_of_runs(members: Iterable[RunRecord]) -> list[Group]:
    """Group runs outside of sweeps: those that differ only in the seed are a row.

    Its name is the keys in which it differs from the other rows.
    """
    by_config: dict[str, list[RunRecord]] = {}
    for run in members:
        config = flat(run.config) if run.is_read else {"": str(run.path)}
        by_config.setdefault(repr(sorted(config.items())), []).append(run)
    rows = [*by_config.values()]
    # the keys that were typed for any of a row's runs; None where that is unknown of one
    read = [row for row in rows if row[0].is_read]
    typed = [union([run.typed for run in row]) for row in read]
    differences = distinct([[row[0].config] for row in read], typed)
    names = _names(rows, differences, None not in typed)
    return [Group(name, row) for name, row in zip(names, rows, strict=True)]


def _names(
    rows: Sequence[list[RunRecord]], differences: Mapping[str, list[str]], all_typed: bool
) -> list[str]:
    """Each row's name: the keys that tell it from the others, the first choices alone if they do.

    `differences` has values only for rows whose run could be read; the report lists all of them.
    Where `all_typed` each of its keys was chosen by somebody, so names have more of them.
    """
    shown_keys = telling(differences)
    if all_typed:
        more = [key for key in differences if key not in shown_keys]
        shown_keys |= {key: differences[key] for key in more[: max(0, _NAMED - len(shown_keys))]}
    names, columns = [], iter([*zip(*shown_keys.values(), strict=True)])
    for run in (row[0] for row in rows):
        if not run.is_read:
            names.append(run.path.name)
            continue
        words = [f"{k}={v}" for k, v in zip(shown_keys, next(columns, ()), strict=False)]
        words = [word for word in words if not word.endswith(f"={ABSENT_VALUE}")] or words
        names.append(", ".join(words) or run_choices(run.config) or "all runs")
    return names


def telling(differences: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """As few of the differing keys as tell all rows apart, in the order in which they matter."""
    order = [*(key for key in _FIRST if key in differences), *differences]
    chosen: dict[str, Sequence[str]] = {}
    parts = 1
    for key in dict.fromkeys(order):
        rows = {*zip(*chosen.values(), differences[key], strict=True)}
        if len(rows) > parts:
            chosen[key], parts = differences[key], len(rows)
    return chosen
