"""Search spaces, and the values that Optuna's samplers choose for the trials of a search.

`draw_random` draws all trials beforehand; `ask` chooses the next ones from what was reached so far.
Both depend on their arguments alone, so that a search that was stopped tries the same values again.
"""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, get_args

from rlfactory.config.problems import PlanError, Problem

Kind = Literal["log", "uniform", "int", "choice"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ALLOWED = "allowed are log(LOW,HIGH), uniform(LOW,HIGH), int(LOW,HIGH) and choice(A,B,...)"


@dataclass(frozen=True)
class Space:
    """The values of a key: those between two numbers, both included, or one of several."""

    kind: Kind
    values: tuple[Any, ...]


def typed_space(key: str, text: str) -> Space:
    """Read a space as the command line has it, `log(1e-6,1e-3)`."""
    call = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", text)
    if call is None:
        raise PlanError([Problem(f"search.{key}", f"is {text}; {ALLOWED}")])
    return space(key, {call[1]: [part.strip() for part in call[2].split(",")]})


def space(key: str, node: object) -> Space:
    """Read a space as a sweep's file has it, `{log: [1e-6, 1e-3]}`."""
    if not isinstance(node, Mapping) or len(node) != 1:
        raise PlanError([Problem(f"search.{key}", f"is {node}; {ALLOWED}")])
    (kind, values) = next(iter(node.items()))
    if kind not in KINDS or not isinstance(values, list) or not values:
        raise PlanError([Problem(f"search.{key}", f"is {kind}: {values}; {ALLOWED}")])
    if kind == "choice":
        return Space(kind, tuple(values))
    try:
        # PyYAML reads 1e-6 as text
        low, high = (int(v) if kind == "int" else float(v) for v in values)
    except (TypeError, ValueError) as error:
        shown = f"has {values}; allowed are two numbers, the lower first"
        raise PlanError([Problem(f"search.{key}", shown)]) from error
    if not -math.inf < low < high < math.inf or (kind == "log" and low <= 0):
        bound = ", both above 0" if kind == "log" else ""
        shown = f"has {values}; allowed are two numbers, the lower first{bound}"
        raise PlanError([Problem(f"search.{key}", shown)])
    return Space(kind, (low, high))


@dataclass(frozen=True)
class Trial:
    """A trial of a row: its values and the score it reached, NaN while that is unknown."""

    row: str
    number: int
    values: Mapping[str, Any]
    score: float


def require_optuna() -> None:
    """PlanError unless Optuna is installed."""
    if find_spec("optuna") is None:
        message = "a search needs optuna, which is not installed; type pip install "
        message += "'rlfactory[optuna]'"
        raise PlanError([Problem("hydra/sweeper", message, "hydra/sweeper=basic")])


def draw_random(spaces: Mapping[str, Space], count: int, *, seed: str) -> list[dict[str, Any]]:
    """Draw the values of `count` trials with Optuna's RandomSampler.

    More trials begin with the same ones. Floats have six digits, so that overrides stay short.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {key: _distribution(space) for key, space in spaces.items()}
    sampler = optuna.samplers.RandomSampler(seed=_seed(seed))
    study = optuna.create_study(sampler=sampler)
    drawn = [study.ask(distributions).params for _ in range(count)]
    return [{key: _short(value, spaces[key]) for key, value in one.items()} for one in drawn]


def ask(
    spaces: Mapping[str, Space], trials: Sequence[Trial], better: str, count: int, *, seed: str
) -> list[dict[str, Any]]:
    """Choose the values of the next `count` trials with Optuna's TPESampler."""
    if not count:
        return []
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {key: _distribution(space) for key, space in spaces.items()}
    sampler = optuna.samplers.TPESampler(
        seed=_seed(seed, len(trials)), constant_liar=True, n_startup_trials=5
    )
    study = optuna.create_study(
        direction="minimize" if better == "lower" else "maximize", sampler=sampler
    )
    for trial in trials:
        failed = math.isnan(trial.score)
        state = optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE
        study.add_trial(
            optuna.trial.create_trial(
                state=state,
                value=None if failed else trial.score,
                params=dict(trial.values),
                distributions=distributions,
            )
        )
    return [dict(study.ask(distributions).params) for _ in range(count)]


def _distribution(space: Space) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if space.kind == "choice":
        return CategoricalDistribution(space.values)
    low, high = space.values
    if space.kind == "int":
        return IntDistribution(low, high)
    return FloatDistribution(low, high, log=space.kind == "log")


def _short(value: Any, space: Space) -> Any:
    """A float in six digits, within its space."""
    if space.kind not in ("log", "uniform"):
        return value
    low, high = space.values
    return min(max(float(f"{value:.6g}"), low), high)


def _seed(*names: object) -> int:
    """A seed below 2**31 that is the same for the same names."""
    digest = hashlib.sha256(repr(names).encode()).digest()
    return int(int.from_bytes(digest[:6]) / 2**48 * 2**31)
