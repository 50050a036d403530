"""What is wrong with a multirun, before the first of its runs begins."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import product

from rlfactory._hydra import Composed, Override
from rlfactory.parted import PARTED
from rlfactory.plan import make_plan
from rlfactory.problems import PlanError, Problem
from rlfactory.request import SEARCHPATH, compose_request, read
from rlfactory.settings import GROUPS


def sweep_problems(overrides: Sequence[str]) -> list[Problem]:
    """The problems of overrides in the configurations that a multirun's choices lead to."""
    problems, ours = _read(overrides)
    for words in product(*map(_alternatives, ours)):
        try:
            problems += _composed(words).problems
        except PlanError as error:
            problems += error.problems
    return list(dict.fromkeys(problems))


def impossible_sweep(overrides: Sequence[str]) -> list[Problem]:
    """The problems of a multirun of which no job can be planned; none where one can."""
    problems, ours = _read(overrides)
    for words in product(*map(_values, ours)):
        try:
            composed = _composed(words)
            make_plan(composed.values, composed.choices, composed.problems)
        except PlanError as error:
            problems += error.problems
        else:
            return []
    return list(dict.fromkeys(problems))


@lru_cache(maxsize=1)  # the first job of a multirun over values is asked about twice
def _composed(words: tuple[str, ...]) -> Composed:
    return compose_request(words)


def _read(overrides: Sequence[str]) -> tuple[list[Problem], list[Override]]:
    """What can't be read, and the overrides that are not Hydra's own."""
    problems: list[Problem] = []
    parsed = [o for word in overrides if (o := read(word, problems)) is not None]
    return problems, [o for o in parsed if o.key_or_group == SEARCHPATH or not _is_hydras(o)]


def _is_hydras(override: Override) -> bool:
    return override.key_or_group.startswith(("hydra.", "hydra/"))


def _alternatives(override: Override) -> list[str]:
    """An override once for each option that it sweeps over, else with its first value."""
    values = _values(override)
    chooses = override.key_or_group in GROUPS or override.key_or_group.removesuffix(".of") in PARTED
    return values if chooses else values[:1]


def _values(override: Override) -> list[str]:
    """An override once for each value that it sweeps over."""
    line = override.input_line or ""
    if not override.is_sweep_override():
        return [line]
    begin = line.partition("=")[0]
    return [f"{begin}={value}" for value in override.sweep_string_iterator()]
