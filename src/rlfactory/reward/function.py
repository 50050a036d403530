"""Any Python function as a reward, in the form that TRL's users know."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples, completions
from rlfactory.reward.calling import answer, load_function, numbers
from rlfactory.types import Positive


class Function(Reward):
    """The score of a function of `prompts`, `completions` and columns of the prompts' metadata.

    It takes lists by keyword, those that it names (or all, by `**columns`), and returns a list of
    numbers; None and NaN are scores that could not be had. The score's name is the function's.
    `timeout` is in seconds. RewardError where the function is not found or returns anything else.
    """

    media = "texts"
    metadata = ()

    def __init__(self, *, function: str, timeout: Positive = 60.0) -> None:
        self.call, self.main = load_function(function)
        self.timeout = timeout
        self._parameters = _parameters(self.call, self.main)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`; all NaN where the function raises, or takes longer than `timeout`."""
        arguments = self._arguments(samples)
        count = len(samples.prompts)
        done = answer(lambda: self.call(**arguments), self.timeout, self.main)
        if done is None:
            return {self.main: torch.full((count,), torch.nan)}
        return {self.main: _scores(done.result(), count, self.main)}

    def _arguments(self, samples: Samples) -> dict[str, list[Any]]:
        """What the function takes of what there is; RewardError if it needs more."""
        there = {
            **_columns(samples.metadata),
            "prompts": list(samples.prompts),
            "completions": list(completions(samples)),
        }
        named = [p for p in self._parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
        missing = [p.name for p in named if p.default is p.empty and p.name not in there]
        if missing:
            raise RewardError(
                f"reward.function: {self.main} takes {', '.join(missing)}, and there are"
                f" {', '.join(sorted(there))}"
            )
        takes_any = len(named) < len(self._parameters)
        names = {p.name for p in named}
        return {name: values for name, values in there.items() if takes_any or name in names}


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """What a function takes by keyword; RewardError if that is not known, or is not all."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise RewardError(f"reward.function: what {name} takes can't be read: {error}") from error
    if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        raise RewardError(f"reward.function: {name} must take prompts and completions by name")
    return [p for p in parameters if p.kind is not p.VAR_POSITIONAL]


def _columns(metadata: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Metadata by key, None where a prompt has none of that name."""
    keys = dict.fromkeys(key for row in metadata for key in row)
    return {key: [row.get(key) for row in metadata] for key in keys}


def _scores(values: object, count: int, name: str) -> Tensor:
    """What the function returned, `[count]` float32; RewardError unless it is such a list."""
    if not isinstance(values, list | tuple):
        raise RewardError(f"reward {name} must return a list, not {type(values).__name__}")
    return numbers(values, count, name, "completions")
