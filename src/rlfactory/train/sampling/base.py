"""The contract of samplers, which draw rollouts to learn from and samples to evaluate or show."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.rollout import GeneratedSamples, Rollout
from rlfactory.utils.pytree import concat, index_rows, row_numbers

T = TypeVar("T")
Advance = Callable[[int], None]
"""Called with the number of samples that were just drawn."""


@dataclass(frozen=True)
class RolloutRequest:
    """The rollout that is to be drawn.

    Attributes:
        prompts: the prompt of each sample of all ranks.
        groups: `[B]`, the group of each.
        index: `[n]`, the numbers of the samples to draw.
        seed: keys their random numbers, with the iteration and these numbers.
    """

    prompts: Sequence[Prompt]
    groups: Tensor
    index: Tensor
    seed: int
    iteration: int

    @property
    def texts(self) -> list[str]:
        """The text of each sample's prompt, of all ranks."""
        return [prompt.text for prompt in self.prompts]

    @property
    def members(self) -> list[tuple[Prompt, int]]:
        """The prompt of each sample of all ranks, and the sample's number within its group."""
        seen, numbers = Counter[int](), []
        for group in self.groups.tolist():
            numbers.append(seen[group])
            seen[group] += 1
        return [*zip(self.prompts, numbers, strict=True)]


class Sampler(ABC):
    """Draws samples from the model's weight set in use, in batches.

    Every random number is keyed by the seed, the iteration (of rollouts) or stream (of other
    samples), and the sample's number, so neither the batch size nor the number of ranks changes it.
    """

    def rollout(self, prompts: Sequence[Prompt], groups: Tensor, **options: Any) -> Rollout:
        """All `batches`, which take `options`, in one rollout."""
        return concat([*self.batches(prompts, groups, **options)])

    def check_rows(self, rows: Iterable[Prompt]) -> None:
        """Check the rows of the data before anything is learned from them.

        Raises:
            PromptError: a row lacks what is learned; never where samples are drawn.
        """
        del rows

    def batches(
        self,
        prompts: Sequence[Prompt],
        groups: Tensor,
        *,
        seed: int,
        iteration: int,
        rows: Tensor | None = None,
    ) -> Iterator[Rollout]:
        """Draw the samples of a rollout.

        Args:
            prompts: the prompts of an iteration.
            groups: `[B]`, the row in `prompts` of each sample of all ranks.
            seed: the seed of the run.
            iteration: the number of the iteration.
            rows: the rows in `groups` of the samples to draw; None: all.

        Yields:
            Each batch as soon as it is drawn, in order. Batches may cut groups.
        """
        index = row_numbers(len(groups), rows)
        all_prompts = [prompts[group] for group in groups.tolist()]
        request = RolloutRequest(all_prompts, groups, index, seed, iteration)
        for chunk, fields in self._fields(request):
            own = index_rows(all_prompts, index[chunk])
            yield Rollout(
                prompts=[prompt.text for prompt in own],
                metadata=[prompt.metadata for prompt in own],
                groups=groups[index[chunk]],
                index=index[chunk],
                **fields,
            )

    @abstractmethod
    def _fields(self, request: RolloutRequest) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        """Draw samples, batch by batch.

        Yields:
            The rows of a batch in `index`, and the fields of its rollout that were drawn.
        """

    @abstractmethod
    def draw(
        self, prompts: Sequence[str], *, seed: int, stream: str, rows: Tensor | None = None
    ) -> GeneratedSamples:
        """Draw one sample per prompt, the same whenever it is asked for.

        Args:
            prompts: the texts of the prompts.
            seed: the seed of the run.
            stream: the name of a stream of random numbers: `evaluation`, `diversity`.
            rows: the rows of the prompts to draw samples of; None: all.
        """


def computed_ahead(calls: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Yield the results of calls in order; a thread computes the next one while one is used."""
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        pending: Future[T] | None = None
        for call in calls:
            following = thread.submit(call)
            if pending is not None:
                yield pending.result()
            pending = following
        if pending is not None:
            yield pending.result()
