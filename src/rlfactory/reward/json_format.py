"""Is a completion JSON, with the keys that are asked for?"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples, completions

# as JSON Schema names them
TYPES: Mapping[str, tuple[type, ...]] = {
    "any": (object,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)


class NoJSONError(ValueError):
    """A text that is no JSON."""


def parse(text: str) -> Any:
    """What a text of JSON (RFC 8259) says; numbers are all 0, of their kind.

    NoJSONError where it is none, also where it is nested deeper than Python can follow.
    """
    try:
        # digits are not read: thousands of them are valid, and an error of Python's
        return json.loads(
            text,
            parse_constant=_refuse,
            parse_int=lambda _: 0,
            parse_float=lambda _: 0.0,
        )
    except (ValueError, RecursionError) as error:
        raise NoJSONError(str(error)) from error


def is_type(value: object, name: str) -> bool:
    """Whether a parsed value is of a JSON type; true is no number."""
    if isinstance(value, bool):
        return name in ("boolean", "any")
    return isinstance(value, TYPES[name])


class JSONFormat(Reward):
    """`json`: 1 where the completion is JSON as asked for, otherwise 0; `json_parsed`: 1 where it
    is JSON at all.

    `root` is the type of the whole; `keys` are those that its object must have, and their types
    where it is a mapping. With `partial="keys"`, an object gets the share of keys that are right.
    """

    media = "texts"
    metadata = ()
    main = "json"
    good = 1.0

    def __init__(
        self,
        *,
        root: str = "any",
        keys: list[str] | dict[str, str] | None = None,
        other_keys: bool = True,
        partial: Literal["none", "keys"] = "none",
        fenced: bool = False,
    ) -> None:
        self.keys = _wanted(keys)
        self.root = "object" if self.keys and root == "any" else root
        self.other_keys = other_keys
        self.partial = partial
        self.fenced = fenced
        _check_types([("root", root), *((f"keys.{k}", v) for k, v in self.keys.items())])
        if self.root != "object" and self.keys:
            raise RewardError(f"reward.root={root} has no keys; type reward.root=object")
        if not self.keys and (partial == "keys" or not other_keys):
            raise RewardError("no keys are asked for; type reward.keys=[NAME,...]")

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        grades = [self._grade(text) for text in completions(samples)]
        score, parsed = torch.tensor(grades, dtype=torch.float32).reshape(-1, 2).unbind(1)
        return {"json": score.contiguous(), "json_parsed": parsed.contiguous()}

    def _grade(self, text: str) -> tuple[float, float]:
        fence = _FENCE.fullmatch(text) if self.fenced else None
        try:
            value = parse(fence[1] if fence else text)
        except NoJSONError:
            return 0.0, 0.0
        return self._credit(value), 1.0

    def _credit(self, value: Any) -> float:
        if not is_type(value, self.root):
            return 0.0
        if not self.keys:
            return 1.0
        right = sum(key in value and is_type(value[key], kind) for key, kind in self.keys.items())
        if not self.other_keys and value.keys() - self.keys.keys():
            return 0.0
        share = right / len(self.keys)
        return share if self.partial == "keys" else float(share == 1)


def _wanted(keys: list[str] | dict[str, str] | None) -> dict[str, str]:
    """Types by key."""
    return dict(keys) if isinstance(keys, Mapping) else dict.fromkeys(keys or [], "any")


def _check_types(named: list[tuple[str, str]]) -> None:
    for key, name in named:
        if name not in TYPES:
            raise RewardError(
                f"reward.{key}={name} is no type of JSON; allowed: {', '.join(TYPES)}"
            )


def _refuse(constant: str) -> None:
    # Python's own additions: NaN, Infinity, -Infinity
    raise ValueError(f"{constant} is not JSON")
