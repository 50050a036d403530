"""A warning that a gold score has fallen, from metrics that every run logs: a logistic model.

It is tested on tasks that it was not fitted on. A statement about more than these runs needs more
tasks than there are here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
PENALTY = 1.0
"""Ridge on the standardised weights: there are few examples, and some separate perfectly."""
_STEPS = 50


@dataclass(frozen=True)
class Example:
    """A run at one evaluation: what it had logged, and whether its gold score had fallen."""

    task: str
    features: Mapping[str, float]
    fallen: bool


@dataclass(frozen=True)
class Detector:
    """Standardisation and weights `[F]` of a logistic model."""

    names: tuple[str, ...]
    mean: Array
    scale: Array
    weights: Array
    bias: float

    def warn(self, features: Mapping[str, float]) -> float:
        """The estimated probability that the gold score has fallen."""
        x = np.array([features[name] for name in self.names])
        return float(_sigmoid(((x - self.mean) / self.scale) @ self.weights + self.bias))


def auroc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """The chance that a positive scores above a negative, ties counting half; NaN without both."""
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=bool)
    above = np.sign(values[truth][:, None] - values[~truth][None, :])
    return float((above.mean() + 1) / 2) if above.size else float("nan")


def fit(examples: Sequence[Example], names: Sequence[str], penalty: float = PENALTY) -> Detector:
    """Minimise the mean log-loss times N plus `penalty / 2 |weights|^2`, by Newton's method."""
    x = np.array([[example.features[name] for name in names] for example in examples])
    y = np.array([example.fallen for example in examples], dtype=np.float64)
    mean, scale = x.mean(0), x.std(0)
    scale = np.where(scale > 0, scale, 1.0)
    design = np.column_stack([(x - mean) / scale, np.ones(len(x))])
    ridge = np.diag([*np.full(len(names), penalty), 1e-6])
    beta = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        p = _sigmoid(design @ beta)
        gradient = design.T @ (p - y) + ridge @ beta
        hessian = (design * (p * (1 - p))[:, None]).T @ design + ridge
        beta -= np.linalg.solve(hessian, gradient)
    return Detector(tuple(names), mean, scale, beta[:-1], float(beta[-1]))


def warnings_of_left_out_tasks(
    examples: Sequence[Example], names: Sequence[str]
) -> dict[str, list[float]]:
    """Each task's warnings, in the order of its examples, by a model fitted on all other tasks."""
    warnings = {}
    for task in dict.fromkeys(example.task for example in examples):
        model = fit([e for e in examples if e.task != task], names)
        warnings[task] = [model.warn(e.features) for e in examples if e.task == task]
    return warnings


def auroc_by_task(examples: Sequence[Example], names: Sequence[str]) -> dict[str, float]:
    """The AUROC on each task that was left out.

    NaN where all its labels are equal, or all those that the model was fitted on.
    """
    found = {}
    for task, scores in warnings_of_left_out_tasks(examples, names).items():
        own = [e.fallen for e in examples if e.task == task]
        fitted = {e.fallen for e in examples if e.task != task}
        found[task] = auroc(scores, own) if len(fitted) == 2 else float("nan")
    return found


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-np.clip(x, -500, 500)))
    return result
