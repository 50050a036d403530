"""The contract of a source of prompts: new ones for each iteration, fixed ones for evaluation.

`randomwalks.py` is the smallest example, `movies.py` one with options. `__init__` takes the options
as keyword-only parameters, which are the keys of the YAML file; it gets no run-time objects.

A run calls the methods in this order:

1. `__init__` once in each process.
2. `known` and `held_out`, whose prompts the rewards check; `texts`, which the models' text encoders
   embed in advance and language models compare with their context length.
3. In each iteration `draw` once, with the same arguments on every rank.
4. In each evaluation `held_out`.

A static method `validate(options, run)` may check options before a run (`utils.types.Faults`).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.utils.errors import PromptError as PromptError  # sources raise it


def item_indices(length: int, count: int, *, seed: int, iteration: int) -> list[int]:
    """The `count` indices below `length` of an iteration, distinct if `count <= length`; ValueError
    if `length` is below 1 or `count` below 0.

    Each epoch is a new permutation, cut into `length // count` full batches, so no item is repeated
    within an epoch; the last `length % count` items of the permutation are left out. If
    `count > length`, each item comes `count // length` times or once more.
    """
    if length < 1 or count < 0:
        raise ValueError(f"cannot take {count} of {length} items")
    if count == 0:
        return []
    epoch, batch = divmod(iteration, max(length // count, 1))
    order = _permutation(length, seed, epoch)[batch * count : (batch + 1) * count]
    indices: list[int] = np.resize(order, count).tolist()
    return indices


@lru_cache(maxsize=1)  # all iterations of an epoch are cut from it
def _permutation(length: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(length)


def spread_indices(length: int, count: int) -> list[int]:
    """`count` evenly spaced indices below `length`; all of them if `count` is larger."""
    count = min(count, length)
    return [i * length // count for i in range(count)]


@dataclass(frozen=True)
class Prompt:
    """A prompt.

    Attributes:
        text: What the model is given; a `PicturedText` where a picture comes with it.
        metadata: What rewards need to know about it, by key.
    """

    text: str
    metadata: Mapping[str, Any]


def different_prompts(sources: Iterable[Iterator[Prompt]], *, held_out: bool) -> list[Prompt]:
    """A prompt of each source, which draws them without end: all held out, or none of them.

    It differs from those before, unless 300 draws give no other one.
    """
    chosen: list[Prompt] = []
    taken: set[str] = set()
    for source in sources:
        allowed = (p for p in islice(source, 300) if is_held_out(p.text) == held_out)
        first = next(allowed)
        if first.text in taken:
            first = next((p for p in allowed if p.text not in taken), first)
        chosen.append(first)
        taken.add(first.text)
    return chosen


class Prompts(ABC):
    """A source of prompts.

    Class attributes are read from the source, without importing the module, when a plan is checked:
    give them as literals.

    Attributes:
        metadata: The keys that each prompt's metadata has; None where only the data can say.
        separate: Whether no evaluation prompt is ever trained on; None at the class where an
            instance knows, which then sets it to True or False.
        features: What every prompt has that a reward may look for, `quoted_word` or `coco_objects`
            (see `config/checks/data.py`); None where only the data can say.
        media: What the prompts ask for, `images` or `texts`; None for either.
        pictures: Whether each prompt has a picture, to be edited; None where only the data can say.
        endless: Whether they are generated without end, so that text encoders stay loaded.
        longest_tokens: Tokens of the longest prompt of a language model, with the one before it;
            None where that is not known.
        for_small_models: Whether they are made for the small models that ship.
        prompt_files: The options that name a `.txt` or `.jsonl` file of prompts, to be checked
            before a run.
    """

    metadata: ClassVar[tuple[str, ...] | None]
    separate: bool | None = False
    features: ClassVar[tuple[str, ...] | None] = None
    media: ClassVar[str | None] = None
    pictures: ClassVar[bool | None] = False
    endless: ClassVar[bool] = False
    longest_tokens: ClassVar[int | None] = None
    for_small_models: ClassVar[bool] = False
    prompt_files: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """Draw the prompts of an iteration.

        Args:
            count: How many.
            seed: The run's seed.
            iteration: From 0.

        Returns:
            `count` prompts, distinct where there are enough. A pure function: equal arguments give
            equal prompts in every process and whatever was drawn before, so a resumed run draws
            what it would have drawn.

        Raises:
            PromptError: A prompt of the data cannot be read.
        """

    def known(self) -> Iterable[Prompt]:
        """All prompts that `draw` may return, to be checked before a run.

        Returns:
            The prompts; empty, the default, where they are generated without end.

        Raises:
            PromptError: A prompt of the data cannot be read.
        """
        return ()

    def texts(self) -> Sequence[str]:
        """The texts of all that is `known`.

        Returns:
            The texts in the same order; empty where `known` is.

        Raises:
            PromptError: A prompt of the data cannot be read.
        """
        return [prompt.text for prompt in self.known()]

    def leave_out(self, texts: Collection[str]) -> None:
        """Leave out prompts, of training and of evaluation, that are too long for the model.

        Args:
            texts: Their texts, some of those that `texts` and `held_out` return.

        Raises:
            PromptError: No prompt is left to train on, or the source can't leave any out.
        """
        if texts:
            raise PromptError(f"{type(self).__name__} can't leave out prompts that are too long")

    @abstractmethod
    def held_out(self, count: int) -> list[Prompt]:
        """The prompts for evaluation.

        Args:
            count: How many are wanted.

        Returns:
            At most `count` prompts, the same in every run, whatever its seed.

        Raises:
            PromptError: A prompt of the data cannot be read.
        """
