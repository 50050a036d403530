"""The contract of a source of prompts: fresh ones for each iteration, fixed ones for evaluation."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


class PromptError(ValueError):
    """Prompts that cannot be read; the message names the file, the line and what is wrong."""


@dataclass(frozen=True)
class Prompt:
    """What is asked, and what rewards need to know about it."""

    text: str
    metadata: Mapping[str, Any]


class Prompts(ABC):
    """A source of prompts. `metadata` names the keys that each brings; None: only the data tell."""

    metadata: ClassVar[tuple[str, ...] | None]

    @abstractmethod
    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` prompts of an iteration, distinct where there are enough.

        The same arguments give the same prompts, in whichever order and process they are asked for.
        """

    def known(self) -> Iterable[Prompt]:
        """All that may be drawn, where there is an end to it, to be checked before a run begins."""
        return ()

    def texts(self) -> Sequence[str]:
        """The texts of all that is `known`."""
        return [prompt.text for prompt in self.known()]

    @abstractmethod
    def held_out(self, count: int) -> list[Prompt]:
        """At most `count` prompts for evaluation, the same in every run."""
