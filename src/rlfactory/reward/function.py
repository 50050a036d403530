"""A Python function as a reward of texts, with the signature of TRL's reward functions."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.chat import ChatText
from rlfactory.reward.base import Reward, RewardError, Samples, require_texts
from rlfactory.reward.ops.python_function import call_with_timeout, load_function, made_by
from rlfactory.utils.types import Positive


class Function(Reward):
    """The scores of `function(prompts, completions, **columns)`, under the function's name.

    The function gets lists of `B` elements by keyword: those that it names, or all by `**columns`;
    the columns are the keys of the prompts' metadata. A conversation is a list of messages, and its
    completion a list of one message of the assistant's. It returns `B` numbers (a list, an array, a
    tensor, a series), None or NaN for a sample that could not be scored; or several by name, of
    which that of the function's name trains. verl's `compute_score`, told by its parameters, is
    called for each sample instead, an async one for all at once. A class is called once, and its
    object scores. `timeout` is in seconds per call. RewardError where the function is not found,
    needs a column that there is not, or returns anything else.
    """

    media = "texts"

    def __init__(self, *, function: str, timeout: Positive = 60) -> None:
        """
        Args:
            function: package.module:name or path/to/file.py:name.
            timeout: > 0: seconds per call, after which its scores count as failed.
        """
        given, self.main = load_function(function)
        given = made_by(given, self.main) if isinstance(given, type) else given
        named = {p.name for p in _keyword_parameters(given, self.main)}
        is_verls = {"solution_str", "ground_truth"} <= named - {"completions"} == named
        self.call = _of_a_batch(given) if is_verls else given
        self.timeout = timeout
        self._parameters = _keyword_parameters(self.call, self.main)

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        if columns := {c for p in prompts for c in ("prompts", "completions", *p.metadata)}:
            self._require(columns)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`; all NaN where the function raises, or takes longer than `timeout`."""
        arguments = self._arguments(samples)
        return call_with_timeout(
            lambda: self.call(**arguments), self.timeout, self.main, len(samples.prompts)
        )

    def _arguments(self, samples: Samples) -> dict[str, list[Any]]:
        """The columns that the function takes; RewardError if it needs one that there is not."""
        available = {
            **_columns(samples.metadata),
            "prompts": [_as_given(prompt) for prompt in samples.prompts],
            "completions": [
                [{"role": "assistant", "content": text}] if isinstance(prompt, ChatText) else text
                for prompt, text in zip(samples.prompts, require_texts(samples), strict=True)
            ],
        }
        self._require(available)
        if any(p.kind is p.VAR_KEYWORD for p in self._parameters):  # by **columns
            return available
        return {p.name: available[p.name] for p in self._parameters if p.name in available}

    def _require(self, available: Collection[str]) -> None:
        """RewardError if the function needs a column that there is not."""
        named = [p for p in self._parameters if p.kind is not p.VAR_KEYWORD]
        missing = [p.name for p in named if p.default is p.empty and p.name not in available]
        if missing:
            raise RewardError(
                f"reward.function: {self.main} takes {', '.join(missing)}, and there are"
                f" {', '.join(sorted(available))}; a default makes a parameter optional"
            )


def _as_given(prompt: str) -> Any:
    """A text, or the messages of a conversation, copied: a function may change them."""
    return [*map(dict, prompt.messages)] if isinstance(prompt, ChatText) else str(prompt)


def _of_a_batch(compute_score: Callable[..., Any]) -> Callable[..., Any]:
    """verl's function of one sample, for a batch of verl's rows."""

    def scores(
        completions: list[Any],
        reward_model: list[Mapping[str, Any]],
        data_source: list[Any] | None = None,
        extra_info: list[Any] | None = None,
    ) -> Any:
        nothing: list[Any] = [None] * len(completions)
        sources, infos = data_source or nothing, extra_info or nothing
        returned = [
            compute_score(
                data_source=source,
                solution_str=text if isinstance(text, str) else text[0]["content"],
                ground_truth=told["ground_truth"],
                extra_info=info,
            )
            for text, told, source, info in zip(
                completions, reward_model, sources, infos, strict=True
            )
        ]
        return _answered(returned) if any(map(inspect.isawaitable, returned)) else _told(returned)

    return scores


async def _answered(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """The scores that an async `compute_score` gives all samples, which it is asked for at once."""
    return _told(await asyncio.gather(*calls))


def _told(returned: Iterable[Any]) -> list[Any]:
    """The scores that `compute_score` returned; of a mapping, its `score`."""
    return [got["score"] if isinstance(got, Mapping) else got for got in returned]


def _keyword_parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """A function's parameters; RewardError if they can't be read, or one is positional only."""
    try:
        # a module's own call takes anything
        told = inspect.signature(getattr(function, "forward", function))
        parameters = list(told.parameters.values())
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
