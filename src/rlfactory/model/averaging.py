"""When a weight set moves towards the policy, and how far."""

from dataclasses import dataclass
from typing import Literal

from rlfactory.model import decay as course
from rlfactory.model.decay import Schedule
from rlfactory.types import BelowOne, NonNegativeInt, Positive, PositiveInt

Clock = Literal["step", "iteration"]


@dataclass(frozen=True)
class Average:
    """`kept <- d kept + (1 - d) policy` at every `interval`-th `update`; `clock` is what the
    schedule of d counts.

    Steps are those of the optimiser, done when it happens; of iterations the one under way counts,
    so the first is 1.
    """

    schedule: Schedule
    decay: BelowOne
    initial: BelowOne
    warmup: PositiveInt
    flat: NonNegativeInt
    ramp: Positive
    total: PositiveInt
    clock: Clock
    update: Clock
    interval: PositiveInt

    def due(self, moment: Clock, *, step: int, iteration: int) -> float | None:
        """The decay after a step or an iteration; None where the set stays as it is."""
        count = {"step": step, "iteration": iteration}
        if moment != self.update or count[moment] % self.interval:
            return None
        return self.after(count[self.clock])

    def after(self, count: int) -> float:
        """The decay at a count of the clock."""
        match self.schedule:
            case "constant":
                return self.decay
            case "power":
                return course.power(count, self.decay, self.warmup)
            case "linear":
                return course.linear(count, self.decay, self.initial, self.warmup)
            case "piecewise_linear":
                return course.piecewise_linear(count, self.decay, self.flat, self.ramp)
            case "cosine":
                return course.cosine(count, self.decay, self.initial, self.total)
            case "warmup_cosine":
                return course.warmup_cosine(
                    count, self.decay, self.initial, self.warmup, self.total
                )
            case "nft_0" | "nft_1" | "nft_2":
                return course.nft(self.schedule, count)
