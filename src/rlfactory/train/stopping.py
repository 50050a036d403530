"""Early stopping: ends a run when its KL divergence or its reward stays above a threshold."""

from collections import deque
from statistics import fmean
from typing import Literal, TypedDict

from rlfactory.utils.types import Positive, PositiveInt


class StopState(TypedDict):
    """The state of a RunStop."""

    past: dict[str, list[float]]
    count: int


class RunStop:
    """Ends a run once its thresholds have been exceeded `patience` iterations in a row.

    A threshold is exceeded where the mean over the last `window` iterations is above it; before
    there are so many iterations it is not.

    Args:
        kl: the threshold of the KL divergence, in nats per token for texts; None for none.
        reward: the threshold of the mean reward; None for none.
        window: the number of iterations in a mean.
        patience: the number of iterations in a row.
        mode: whether `any` threshold must be exceeded or `all` of them.
    """

    def __init__(
        self,
        *,
        kl: Positive | None = None,
        reward: float | None = None,
        window: PositiveInt = 1,
        patience: PositiveInt = 1,
        mode: Literal["any", "all"] = "any",
    ) -> None:
        thresholds = {"KL": kl, "reward": reward}
        self.thresholds = {name: value for name, value in thresholds.items() if value is not None}
        self.window, self.patience = window, patience
        self._required = len(self.thresholds) if mode == "all" else 1
        self._past = {name: deque[float](maxlen=window) for name in self.thresholds}
        self._count = 0

    def update(self, kl: float | None, reward: float | None) -> str | None:
        """Note the means of an iteration.

        Args:
            kl: None where it was not measured, which exceeds no threshold.
            reward: the mean reward; None without one.

        Returns:
            Why the run must stop, or None.
        """
        latest = {"KL": kl, "reward": reward}
        exceeded = [text for name in self.thresholds if (text := self._check(name, latest[name]))]
        is_met = exceeded and len(exceeded) >= self._required
        self._count = self._count + 1 if is_met else 0
        if self._count < self.patience:
            return None
        return f"{' and '.join(exceeded)}, {self._count} iterations in a row."

    def _check(self, name: str, value: float | None) -> str | None:
        """How a threshold is exceeded, or None."""
        past = self._past[name]
        if value is None:
            return None
        past.append(value)
        mean, threshold = fmean(past), self.thresholds[name]
        if len(past) < self.window or not mean > threshold:
            return None
        return f"{name} {mean:.4g} is above {threshold:g}"

    def state_dict(self) -> StopState:
        """The windows and the count, fit for JSON."""
        past = {name: list(values) for name, values in self._past.items()}
        return {"past": past, "count": self._count}

    def load_state_dict(self, state: StopState) -> None:
        """Restore a `state_dict`; a threshold added since then begins with an empty window."""
        for name, past in self._past.items():
            past.clear()
            past.extend(map(float, state["past"].get(name, [])))
        self._count = int(state["count"])
