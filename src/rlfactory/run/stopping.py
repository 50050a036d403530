"""When a run has gone far enough: its divergence or its reward stays above a threshold."""

from collections import deque
from statistics import fmean
from typing import Literal, TypedDict

from rlfactory.types import Positive, PositiveInt


class StopState(TypedDict):
    """What a resumed run needs."""

    past: dict[str, list[float]]
    count: int


class RunStop:
    """Ends a run once `any` or `all` of its rules have been broken `patience` iterations in a row.

    A rule, on the KL in nats per token or on the reward, is broken where the mean over the last
    `window` iterations is above its threshold, and not before there are so many.
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
        given = {"KL": kl, "reward": reward}
        self.thresholds = {name: value for name, value in given.items() if value is not None}
        self.window, self.patience = window, patience
        self._wanted = len(self.thresholds) if mode == "all" else 1
        self._past = {name: deque[float](maxlen=window) for name in self.thresholds}
        self._count = 0

    def update(self, kl: float | None, reward: float) -> str | None:
        """Why to stop after an iteration with these means, or None; a KL of None breaks no rule."""
        latest = {"KL": kl, "reward": reward}
        broken = [text for name in self.thresholds if (text := self._judge(name, latest[name]))]
        self._count = self._count + 1 if broken and len(broken) >= self._wanted else 0
        if self._count < self.patience:
            return None
        return f"{' and '.join(broken)}, {self._count} iterations in a row."

    def _judge(self, name: str, value: float | None) -> str | None:
        past = self._past[name]
        if value is None:
            return None
        past.append(value)
        mean, threshold = fmean(past), self.thresholds[name]
        if len(past) < self.window or not mean > threshold:
            return None
        return f"{name} {mean:.4g} is above {threshold:g}"

    def state_dict(self) -> StopState:
        """What a resumed run needs, fit for JSON."""
        past = {name: list(values) for name, values in self._past.items()}
        return {"past": past, "count": self._count}

    def load_state_dict(self, state: StopState) -> None:
        """Go on from a `state_dict`; a rule that is new since then starts with an empty window."""
        for name, past in self._past.items():
            past.clear()
            past.extend(state["past"].get(name, []))
        self._count = state["count"]
