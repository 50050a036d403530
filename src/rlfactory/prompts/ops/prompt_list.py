"""Prompts from a fixed list."""

from collections.abc import Iterable, Sequence

from rlfactory.prompts.base import Prompt, Prompts, item_indices, spread_indices
from rlfactory.prompts.ops.pictured import pictured


def texts_of(prompts: Iterable[Prompt]) -> set[str]:
    """The different texts of prompts."""
    return {prompt.text for prompt in prompts}


class PromptList(Prompts):
    """Training prompts, and prompts for evaluation, as lists; the base class of such sources.

    Args:
        prompts: the training prompts, at least one.
        evaluation: the prompts for evaluation; None: the training prompts.
    """

    separate = None

    def __init__(
        self, prompts: Sequence[Prompt], evaluation: Sequence[Prompt] | None = None
    ) -> None:
        self.prompts = list(prompts)
        self.eval_prompts = self.prompts if evaluation is None else list(evaluation)
        self.separate = not texts_of(self.prompts) & texts_of(self.eval_prompts)

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` prompts, shuffled without replacement, repeated only if there are too few."""
        chosen = item_indices(len(self.prompts), count, seed=seed, iteration=iteration)
        return [self.prompts[i] for i in chosen]

    def known(self) -> list[Prompt]:
        """The training prompts."""
        return self.prompts

    def held_out(self, count: int) -> list[Prompt]:
        """At most `count` prompts for evaluation, evenly spaced."""
        return [self.eval_prompts[i] for i in spread_indices(len(self.eval_prompts), count)]


class GivenPrompts(PromptList):
    """Prompts that a command gave, some with the path of a picture; they have no metadata."""

    metadata = ()
    pictures = None

    def __init__(self, *, texts: list[str], pictures: list[str | None] | None = None) -> None:
        pairs = zip(texts, pictures or [None] * len(texts), strict=True)
        given = (pictured(text, path) if path is not None else text for text, path in pairs)
        super().__init__([Prompt(text, {}) for text in given])
