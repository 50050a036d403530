"""Mean and deviation of all the scores so far."""

from collections.abc import Mapping

from torch import Tensor


class Running:
    """Welford's statistics, joined batch by batch (Chan et al.), in float64."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0.0, 0.0, 0.0

    def update(self, values: Tensor) -> None:
        """Take up finite scores `[B]`, at least one."""
        new, count = values.double(), len(values)
        mean = float(new.mean())
        squares = float((new - mean).square().sum())
        total, moved = self.count + count, mean - self.mean
        self.squares += squares + moved**2 * self.count * count / total
        self.mean += moved * count / total
        self.count = total

    @property
    def std(self) -> float:
        """The population deviation, 0 before anything was seen."""
        return float((self.squares / self.count) ** 0.5) if self.count else 0.0

    def normalised(self, values: Tensor, eps: float) -> Tensor:
        """`(r - mean) / max(std, eps)` `[B]` float32, the present scores among those counted."""
        self.update(values)
        return ((values.double() - self.mean) / max(self.std, eps)).float()

    def state_dict(self) -> dict[str, float]:
        """What must survive a restart."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Take up what `state_dict` gave."""
        self.count, self.mean = state["count"], state["mean"]
        self.squares = state["squares"]
