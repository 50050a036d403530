"""Beginnings of film reviews, for a model to go on."""

from rlfactory.prompts.base import Prompt, PromptError, Prompts
from rlfactory.prompts.sampler import item_indices

OPENINGS = (
    "This movie was really",
    "This film is",
    "I watched this movie because",
    "The acting in this film",
    "I thought the story",
    "The plot of this movie",
    "When I first saw this film,",
    "The main character is",
    "I have to say that this movie",
    "The director of this film",
    "After watching this movie, I",
    "The best thing about this film is",
    "The script is",
    "My friends and I went to see this, and",
    "If you like this kind of movie,",
    "The music and the camera work",
    "From the very first scene, this film",
    "I was expecting",
    "The ending of this movie",
    "As a fan of the book, I found this film",
    "The special effects are",
    "This is one of those movies that",
    "The cast of this film",
    "All in all, this movie was",
)


class Movies(Prompts):
    """Distinct openings in each iteration, as far as they go; all of them, again and again, to be
    evaluated on, since samples of the same prompt differ by their number.
    """

    metadata = ()

    def __init__(self, *, openings: list[str] | None = None) -> None:
        if openings is not None and not openings:
            raise PromptError("prompts.openings is empty; leave it null or name at least one")
        self.openings = list(openings or OPENINGS)

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` openings, each as often as the others or once more."""
        chosen = item_indices(len(self.openings), count, seed=seed, iteration=iteration)
        return [Prompt(self.openings[i], {}) for i in chosen]

    def held_out(self, count: int) -> list[Prompt]:
        """`count` openings in turn."""
        return [Prompt(self.openings[i % len(self.openings)], {}) for i in range(count)]
