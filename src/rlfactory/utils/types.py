"""Annotated types for constructors: ranges that the plan checks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal


@dataclass(frozen=True)
class Interval:
    """Bounds of a number; `ge`/`le` include the bound, `gt`/`lt` do not."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None


class TargetNode:
    """Stands for an abstract class in a configuration: a mapping with a `_target_`."""


PositiveInt = Annotated[int, Interval(ge=1)]
NonNegativeInt = Annotated[int, Interval(ge=0)]
Positive = Annotated[float, Interval(gt=0)]
NonNegative = Annotated[float, Interval(ge=0)]
Fraction = Annotated[float, Interval(ge=0, le=1)]
BelowOne = Annotated[float, Interval(ge=0, lt=1)]
BelowHalf = Annotated[float, Interval(ge=0, lt=0.5)]
PositiveFraction = Annotated[float, Interval(gt=0, le=1)]
Size = PositiveInt | list[PositiveInt]
"""Pixels: the edge of a square, or height and width."""
LoraTargets = list[str] | str | None
"""Module names or their endings; `all-linear`, or a regular expression; None: a default."""
Media = Literal["images", "videos", "texts"]
"""What a model generates."""
GPUName = Literal[
    "auto",
    "h100",
    "h100_pcie",
    "h200",
    "gh200",
    "h800",
    "h20",
    "b200",
    "a100_80gb",
    "a100_40gb",
    "a800",
    "l40s",
    "a6000",
    "a10",
    "rtx3090",
    "rtx4090",
    "rtx5090",
]
"""GPUs of config/memory/devices.yaml; `auto` is the one that nvidia-smi reports."""

Faults = Iterator[tuple[str, str, str]]
"""What a component's `validate(options, run)` yields, one for each fault: the option's name, what
is wrong with it and what is allowed, and an override that is right (empty where there is none)."""
