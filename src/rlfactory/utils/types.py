"""Annotated types for constructors, ranges that the plan checks; whether a plain value is of a
type, and types in words.
"""

import math
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin


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
"""What a component's static method `validate(options, run)` yields, one for each fault of its own
options, or with them of the run's: the option's name, what is wrong with it and what is allowed,
and an override that is right (empty where there is none). It is compiled from its source while
planning, so it uses builtins and what it imports itself, without torch."""


_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def matches(value: object, kind: Any) -> bool:
    """Whether `value`, as read from YAML, is a `kind`. An int is a float; bool, NaN and infinity
    are not.
    """
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return True
    if origin is Annotated:
        return matches(value, args[0]) and all(_inside(value, bound) for bound in args[1:])
    if origin is Literal:
        return any(value == option and type(value) is type(option) for option in args)
    if origin in (Union, types.UnionType):
        return any(matches(value, option) for option in args)
    if kind is None or kind is type(None):
        return value is None
    if kind is TargetNode:
        return isinstance(value, Mapping) and "_target_" in value
    if origin in (list, tuple, Sequence):
        item = args[0] if args else Any
        return isinstance(value, list | tuple) and all(matches(v, item) for v in value)
    if origin in (dict, Mapping) or kind is dict:
        key, item = args or (Any, Any)
        return isinstance(value, dict) and all(
            matches(k, key) and matches(v, item) for k, v in value.items()
        )
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and _finite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, kind)


def literals(kind: Any) -> list[str]:
    """The options of the `Literal`s in a `kind`."""
    if get_origin(kind) is Literal:
        return [str(option) for option in get_args(kind)]
    if get_origin(kind) in (Union, types.UnionType, Annotated):
        return [word for option in get_args(kind) for word in literals(option)]
    return []


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int too large for a float
        return False


def _inside(value: Any, bound: object) -> bool:
    if not isinstance(bound, Interval):
        return True
    return (
        (bound.ge is None or value >= bound.ge)
        and (bound.gt is None or value > bound.gt)
        and (bound.le is None or value <= bound.le)
        and (bound.lt is None or value < bound.lt)
    )


def describe(kind: Any) -> str:
    """The values that a `kind` allows, in words."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = [t for b in args[1:] if isinstance(b, Interval) for t in _bound_in_words(b)]
        return f"{describe(args[0])} {' and '.join(bounds)}".strip()
    if origin is Literal:
        return " | ".join(str(option) for option in args)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(option) for option in args)
    if kind is None or kind is type(None):
        return "null"
    if origin in (list, tuple, Sequence):
        return f"a list, each {describe(args[0])}" if args else "a list"
    if kind is TargetNode:
        return "a mapping with a _target_"
    if origin in (dict, Mapping) and args[1] is not Any:
        return f"a mapping of {describe(args[0])}, each {describe(args[1])}"
    if origin in (dict, Mapping) or kind is dict or is_dataclass(kind):
        return "a mapping"
    return _NAMES.get(kind, "anything")


def _bound_in_words(bound: Interval) -> list[str]:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    limits = {f.name: getattr(bound, f.name) for f in fields(bound)}
    return [f"{signs[name]} {limit:g}" for name, limit in limits.items() if limit is not None]
