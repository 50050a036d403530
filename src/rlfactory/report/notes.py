"""What a reader has to mind: what an interval is, and what a report leaves out."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rlfactory.report.group import Group, Member
from rlfactory.report.read import ABSENT, DAMAGED
from rlfactory.sweep.table import Column

INTERVAL = "Ours is the mean over n seeds, ± half of its 95 % interval (Student's t)."
BEST = (
    "Ours is of each run's best evaluation, which flatters: it was chosen by what it is judged by."
)
_NAMED = 5


def notes_of(
    groups: Sequence[Group],
    columns: Sequence[Column],
    values: Sequence[Mapping[str, Sequence[object]]],
    best: bool,
) -> list[str]:
    """Sentences about a report's rows."""
    members = [member for group in groups for member in group.members]
    return [
        INTERVAL,
        *([BEST] if best else []),
        *_left_out(members),
        *_unfinished(members),
        *_unmeasured(groups, columns, values),
        *_of_one_seed(groups),
    ]


def _left_out(members: Sequence[Member]) -> Iterator[str]:
    damaged = {member.path: member.fault for member in members if member.state == DAMAGED}
    for path, fault in damaged.items():
        yield f"Left out, for it is damaged: {path} ({fault})."


def _unfinished(members: Sequence[Member]) -> Iterator[str]:
    states = {m.path.name: m.state for m in members if m.state not in ("done", DAMAGED, ABSENT)}
    if states:
        named = [f"{name} ({state})" for name, state in states.items()]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        yield f"Not counted, for they are not done: {', '.join(named[:_NAMED])}{more}."


def _unmeasured(
    groups: Sequence[Group],
    columns: Sequence[Column],
    values: Sequence[Mapping[str, Sequence[object]]],
) -> Iterator[str]:
    """Runs that are done and lack a number that others of their row have; where none has it, the
    row's own reward measures something else.
    """
    for group, found in zip(groups, values, strict=True):
        short = [
            f"{column.label} {len(found[column.name])} of {len(group.counted)}"
            for column in columns
            if column.measure and 0 < len(found[column.name]) < len(group.counted)
        ]
        if short and not group.untrained:
            yield f"{group.name}: not all runs measured {', '.join(short)}."


def _of_one_seed(groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        seeds = Counter(run.config["seed"] for run in group.runs if "seed" in run.config)
        for seed, count in seeds.items():
            if count > 1 and not group.untrained:
                yield f"{group.name}: {count} runs have seed {seed}: intervals are too narrow."
