"""What a search may choose for a key, and a draw from it that depends on names alone."""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rlfactory.problems import PlanError, Problem

Kind = Literal["log", "uniform", "int", "choice"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ALLOWED = "allowed are log(LOW,HIGH), uniform(LOW,HIGH), int(LOW,HIGH) and choice(A,B,...)"


@dataclass(frozen=True)
class Space:
    """The values of a key: between two numbers, or one of several."""

    kind: Kind
    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        """The value at a share of the way, `[0, 1)`."""
        if self.kind == "choice":
            return self.values[int(share * len(self.values))]
        low, high = self.values
        if self.kind == "int":
            return low + int(share * (high - low + 1))
        if self.kind == "log":
            low, high = math.log(low), math.log(high)
            return _short(math.exp(low + share * (high - low)))
        return _short(low + share * (high - low))


def _short(value: float) -> float:
    """Six digits: what is typed, stored and read again is then one number."""
    return float(f"{value:.6g}")


@dataclass(frozen=True)
class Trial:
    """What was tried in a row, and what it reached; NaN while it is not known."""

    row: str
    number: int
    values: Mapping[str, Any]
    score: float


def typed_space(key: str, text: str) -> Space:
    """A space as it stands on the command line, `log(1e-6,1e-3)`."""
    found = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", text)
    if found is None:
        raise PlanError([Problem(f"search.{key}", f"is {text}; {ALLOWED}")])
    return space(key, {found[1]: [part.strip() for part in found[2].split(",")]})


def space(key: str, node: object) -> Space:
    """A space as a file has it, `{log: [1e-6, 1e-3]}`."""
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


def share_of(*names: object) -> float:
    """A number in `[0, 1)` that is the same for the same names, and otherwise looks random."""
    digest = hashlib.sha256(repr(names).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48
