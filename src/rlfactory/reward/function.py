"""A Python function as a reward of texts, with the signature of TRL's reward functions."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples, require_texts
from rlfactory.reward.ops.python_function import call_with_timeout, load_function, to_scores
from rlfactory.utils.types import Positive


class Function(Reward):
    """The scores of `function(prompts, completions, **columns)`, under the function's name.

    The function gets lists of `B` elements by keyword: those that it names, or all by `**columns`;
    the columns are the keys of the prompts' metadata. It returns a list of `B` numbers, None or NaN
    for a sample that could not be scored. `timeout` is in seconds per call. RewardError where the
    function is not found, needs a column that there is not, or returns anything else.
    """

    media = "texts"
    metadata = ()
    function_arguments = ("prompts", "completions")
    passes_by_name = True

    def __init__(self, *, function: str, timeout: Positive = 60.0) -> None:
        self.call, self.main = load_function(function)
        self.timeout = timeout
        self._parameters = _keyword_parameters(self.call, self.main)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`; all NaN where the function raises, or takes longer than `timeout`."""
        arguments = self._arguments(samples)
        count = len(samples.prompts)
        done = call_with_timeout(lambda: self.call(**arguments), self.timeout, self.main)
        if done is None:
            return {self.main: torch.full((count,), torch.nan)}
        return {self.main: _scores(done.result(), count, self.main)}

    def _arguments(self, samples: Samples) -> dict[str, list[Any]]:
        """The columns that the function takes; RewardError if it needs one that there is not."""
        available = {
            **_columns(samples.metadata),
            "prompts": [str(prompt) for prompt in samples.prompts],  # of conversations transcripts
            "completions": list(require_texts(samples)),
        }
        named = [p for p in self._parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
        missing = [p.name for p in named if p.default is p.empty and p.name not in available]
        if missing:
            raise RewardError(
                f"reward.function: {self.main} takes {', '.join(missing)}, and there are"
                f" {', '.join(sorted(available))}"
            )
        takes_any = len(named) < len(self._parameters)  # by **columns
        names = {p.name for p in named}
        return {name: values for name, values in available.items() if takes_any or name in names}


def _keyword_parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """A function's parameters; RewardError if they can't be read, or one is positional only."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise RewardError(
            f"reward.function: the parameters of {name} can't be read: {error}"
        ) from error
    if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        raise RewardError(f"reward.function: {name} must take prompts and completions by name")
    return [p for p in parameters if p.kind is not p.VAR_POSITIONAL]


def _columns(metadata: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The metadata of `B` prompts as lists by key, None where a prompt lacks the key."""
    keys = dict.fromkeys(key for row in metadata for key in row)
    return {key: [row.get(key) for row in metadata] for key in keys}


def _scores(values: object, count: int, name: str) -> Tensor:
    """The returned list as `[count]` float32; RewardError unless it is a list of numbers."""
    if not isinstance(values, list | tuple):
        raise RewardError(f"reward {name} must return a list, not {type(values).__name__}")
    return to_scores(values, count, name, "completions")
