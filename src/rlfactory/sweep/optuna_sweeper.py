"""What Optuna would try next, given what was tried: its own ask-and-tell, without its storage."""

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from rlfactory.problems import PlanError, Problem
from rlfactory.sweep.space import Space, Trial, share_of


def require_optuna() -> None:
    """PlanError unless it is installed."""
    if find_spec("optuna") is None:
        message = "optuna is not installed; type pip install 'rlfactory[optuna]'"
        raise PlanError([Problem("hydra/sweeper", message, "hydra/sweeper=random")])


def ask(
    spaces: Mapping[str, Space], told: Sequence[Trial], better: str, count: int, *, seed: str
) -> list[dict[str, Any]]:
    """The next values to try.

    They depend on nothing but the arguments, so that a search that was stopped asks for the same.
    """
    if not count:
        return []
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {key: _distribution(space) for key, space in spaces.items()}
    number = int(share_of(seed, len(told)) * 2**31)
    study = optuna.create_study(
        direction="minimize" if better == "lower" else "maximize",
        sampler=optuna.samplers.TPESampler(seed=number, constant_liar=True, n_startup_trials=5),
    )
    for trial in told:
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
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if space.kind == "choice":
        return CategoricalDistribution(space.values)
    low, high = space.values
    if space.kind == "int":
        return IntDistribution(low, high)
    return FloatDistribution(low, high, log=space.kind == "log")
