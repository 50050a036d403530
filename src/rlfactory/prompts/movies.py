"""Beginnings of film reviews, which a language model goes on with."""

from math import ceil

from rlfactory.prompts.base import Prompt, PromptError, Prompts
from rlfactory.prompts.sampler import item_indices
from rlfactory.types import Fraction

STARTS = (
    "This movie was really",
    "The acting in this film",
    "I watched this movie because",
    "After the first ten minutes",
    "The director of this film",
    "I have to say that the plot",
    "My friends and I went to see",
    "Compared with the book, the movie",
    "The best way to describe this film is",
    "What surprised me most was",
    "The lead actor gives a performance that",
    "From the opening scene to the end",
    "I had never heard of this film until",
    "The script of this movie",
    "As a fan of the series, I",
    "The ending of the film",
    "If you are thinking about seeing this movie,",
    "The music and the photography",
    "Some people say this picture is",
    "I rented this last night and",
    "The story begins when",
    "Most of the scenes in this movie",
    "It has been years since I saw a film so",
    "The dialogue in this film",
)


class Movies(Prompts):
    """Two dozen beginnings, or `starts` of one's own.

    The last `held_out_share` of them, rounded up, are kept for evaluation alone; with a share of 0
    evaluation takes those of training.
    """

    metadata = ()

    def __init__(self, *, starts: list[str] | None = None, held_out_share: Fraction = 0.0) -> None:
        texts = list(STARTS) if starts is None else list(dict.fromkeys(starts))
        if not texts or not all(text.strip() for text in texts):
            raise PromptError("prompts.starts must be texts, at least one, and none of them blank")
        kept = ceil(round(held_out_share * len(texts), 6))  # 0.07 * 100 is a little more than 7
        if kept == len(texts):
            raise PromptError(
                f"prompts.held_out_share={held_out_share} leaves none of the"
                f" {len(texts)} prompts.starts to train on"
            )
        prompts = [Prompt(text, {}) for text in texts]
        self.starts = prompts[: len(prompts) - kept]
        self.held_out_starts = prompts[len(prompts) - kept :] or prompts

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` beginnings of an iteration, shuffled, each again only if there are too few."""
        chosen = item_indices(len(self.starts), count, seed=seed, iteration=iteration)
        return [self.starts[i] for i in chosen]

    def known(self) -> list[Prompt]:
        """Those to train on."""
        return self.starts

    def held_out(self, count: int) -> list[Prompt]:
        """`count` beginnings in their order, over and over: each draws noise of its own."""
        return [self.held_out_starts[i % len(self.held_out_starts)] for i in range(count)]
