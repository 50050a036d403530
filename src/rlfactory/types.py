"""Ranges that a constructor's annotation can state, so that the plan can check them."""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Interval:
    """Bounds of a number; `ge`/`le` include the bound, `gt`/`lt` do not."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None


class Component:
    """What an abstract class is in a configuration: a mapping that names a target."""


PositiveInt = Annotated[int, Interval(ge=1)]
NonNegativeInt = Annotated[int, Interval(ge=0)]
Positive = Annotated[float, Interval(gt=0)]
NonNegative = Annotated[float, Interval(ge=0)]
Fraction = Annotated[float, Interval(ge=0, le=1)]
BelowOne = Annotated[float, Interval(ge=0, lt=1)]
PositiveFraction = Annotated[float, Interval(gt=0, le=1)]
