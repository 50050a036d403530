"""DDPO's prompts (Black et al. 2023): animals, and activities of animals."""

from typing import Literal

from rlfactory.prompts.base import Prompt, PromptError, spread_indices
from rlfactory.prompts.ops.prompt_list import PromptList, shipped_texts
from rlfactory.prompts.ops.scenes import with_article

NAMES = shipped_texts("animals")


class Animals(PromptList):
    """The name of an animal; with `doing`, "a NAME ACTIVITY" for each pair of both.

    `of="simple"` are DDPO's 45 animals; `of="imagenet"` the first 398 classes of ImageNet, each by
    its first name. PromptError where `doing` is empty or holds a blank text.
    """

    metadata = ()
    separate = False
    features = ()
    media = "images"

    def __init__(
        self, *, of: Literal["simple", "imagenet"] = "simple", doing: list[str] | None = None
    ) -> None:
        """
        Args:
            of: simple (DDPO's 45) | imagenet (398).
            doing: A list of activities, combined with each animal; null: the animal's name alone.
        """
        if doing is not None and not (doing and all(text.strip() for text in doing)):
            raise PromptError("prompts.doing must be texts, at least one, and none of them blank")
        texts = [*NAMES[of]]
        if doing is not None:
            texts = [f"{with_article(name)} {activity}" for name in texts for activity in doing]
        super().__init__([Prompt(text, {}) for text in texts])

    def held_out(self, count: int) -> list[Prompt]:
        """`count` training prompts, as in DDPO: evenly spaced, or repeated if there are too few."""
        rounds = -(-count // len(self.prompts))
        if rounds > 1:
            return ([*self.prompts] * rounds)[:count]
        return [self.prompts[i] for i in spread_indices(len(self.prompts), count)]
