"""Format reward: whether a completion is JSON (RFC 8259) with the required keys, or of its prompt's
value.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.reward.base import RewardError, Samples, require_texts
from rlfactory.reward.ops.answers import AnswerReward

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
"""Python's types by the names of JSON Schema."""
_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)


class NoJSONError(ValueError):
    """A text that is not JSON."""


def parse(text: str, *, exactly: bool = False) -> Any:
    """The value of a JSON text, with 0 or 0.0 for every number; `exactly`: in a form whose `==`
    compares as JSON does: 1.0 equals 1, and true does not.

    NoJSONError where it is not JSON, or is nested deeper than Python's recursion limit.
    """
    try:
        # digits are not converted: JSON allows thousands of them, int() raises an error
        if not exactly:
            return json.loads(
                text, parse_constant=_refuse, parse_int=lambda _: 0, parse_float=lambda _: 0.0
            )
        return _comparable(
            json.loads(text, parse_constant=_refuse, parse_int=_decimal, parse_float=_decimal)
        )
    except (ValueError, RecursionError) as error:
        raise NoJSONError(str(error)) from error


def _decimal(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation:
        # an exponent beyond Decimal's range; no answer has this value
        return Decimal("Infinity")


def _comparable(value: Any) -> Any:
    """A parsed value in which booleans are unequal to numbers, and numbers are Decimals."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, int | float):
        return Decimal(str(value))
    if isinstance(value, list | tuple):
        return [_comparable(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _comparable(item) for key, item in value.items()}
    return value


def is_type(value: object, name: str) -> bool:
    """Whether a parsed value has a JSON type; booleans are not numbers, as they are in Python."""
    if isinstance(value, bool):
        return name in ("boolean", "any")
    return isinstance(value, TYPES[name])


class JSONFormat(AnswerReward):
    """`json`: 1 where the completion is JSON as required, otherwise 0; `json_parsed`: 1 where it is
    any JSON.

    Where values are compared, the order of an object's keys does not count. RewardError for options
    that contradict each other, or prompts without answers.
    """

    metadata_options = ("answer_column",)
    main = "json"
    better = {"json_parsed": "higher"}

    def __init__(
        self,
        *,
        root: str = "any",
        keys: list[str] | dict[str, str] | None = None,
        other_keys: bool = True,
        partial: Literal["none", "keys"] = "none",
        fenced: bool = False,
        answer_column: str | None = None,
    ) -> None:
        """
        Args:
            root: any | object | array | string | number | integer | boolean | null: type of the
                top-level value.
            keys: Required keys of a top-level object: [name, age], or {name: string, age: integer}.
            other_keys: false: any further key makes the score 0.
            partial: none | keys: the share of correct keys.
            fenced: true: a block between ```json and ``` is accepted too.
            answer_column: Key of each prompt's value, a JSON text or the value itself, that the
                completion must equal; null: none.
        """
        if answer_column is not None and (keys or root != "any" or partial == "keys"):
            raise RewardError(
                f"reward.answer_column={answer_column} compares all of the value; leave out"
                " reward.root, reward.keys and reward.partial"
            )
        super().__init__(answer_column)
        self.keys = dict(keys) if isinstance(keys, Mapping) else dict.fromkeys(keys or [], "any")
        self.root = "object" if self.keys and root == "any" else root
        self.other_keys = other_keys
        self.partial = partial
        self.fenced = fenced
        for key, name in (("root", root), *((f"keys.{k}", v) for k, v in self.keys.items())):
            if name not in TYPES:
                raise RewardError(
                    f"reward.{key}={name} is no type of JSON; allowed: {', '.join(TYPES)}"
                )
        if self.root != "object" and self.keys:
            raise RewardError(f"reward.root={root} can't have keys; type reward.root=object")
        if not self.keys and (partial == "keys" or not other_keys):
            raise RewardError("reward.keys is empty; type reward.keys=[NAME,...]")

    def fault(self, answer: object) -> str | None:
        """Whether it is not JSON."""
        if answer is None:
            return "is None; null in JSON is written as the text 'null'"
        try:
            _expected(answer)
        except NoJSONError as error:
            return f"is {answer!r:.40}, which is not JSON ({error})"
        return None

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        texts = require_texts(samples)
        answers = [None] * len(texts) if self.column is None else self.answers(samples)
        grades = [self._grade(*pair) for pair in zip(texts, answers, strict=True)]
        score, parsed = torch.tensor(grades, dtype=torch.float32).reshape(-1, 2).unbind(1)
        return {"json": score.contiguous(), "json_parsed": parsed.contiguous()}

    def _grade(self, text: str, answer: object) -> tuple[float, float]:
        """Both scores of a completion; the first is NaN where the answer to equal is lacking."""
        compares = self.column is not None
        fence = _FENCE.fullmatch(text) if self.fenced else None
        try:
            value = parse(fence[1] if fence else text, exactly=compares)
        except NoJSONError:
            return (torch.nan if compares and answer is None else 0.0), 0.0
        if not compares:
            return self._credit(value), 1.0
        return (torch.nan if answer is None else float(value == _expected(answer))), 1.0

    def _credit(self, value: Any) -> float:
        if not is_type(value, self.root):
            return 0.0
        if not self.keys:
            return 1.0
        correct = sum(key in value and is_type(value[key], kind) for key, kind in self.keys.items())
        if not self.other_keys and value.keys() - self.keys.keys():
            return 0.0
        share = correct / len(self.keys)
        return share if self.partial == "keys" else float(share == 1)


def _expected(answer: object) -> Any:
    """The value that an answer means: a text is JSON, anything else the value itself."""
    return parse(answer, exactly=True) if isinstance(answer, str) else _comparable(answer)


def _refuse(constant: str) -> None:
    # NaN, Infinity and -Infinity, which Python's parser accepts
    raise ValueError(f"{constant} is not JSON")
