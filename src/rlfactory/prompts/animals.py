"""Animals, and what they might be doing: the prompts of DDPO."""

from pathlib import Path
from typing import Literal

from rlfactory.prompts.base import Prompt, PromptError, Prompts
from rlfactory.prompts.sampler import item_indices, spread_indices

_SIMPLE = """
cat dog horse monkey rabbit zebra spider bird sheep deer cow goat lion tiger bear raccoon fox wolf
lizard beetle ant butterfly fish shark whale dolphin squirrel mouse rat snake turtle frog chicken
duck goose bee pig turkey fly llama camel bat gorilla hedgehog kangaroo
"""
SIMPLE = tuple(_SIMPLE.split())
_IMAGENET = Path(__file__).with_name("imagenet_animals.txt")


class Animals(Prompts):
    """The name of an animal, or with `doing`, "a NAME ACTIVITY" for each of both.

    `simple` are DDPO's 45; `imagenet` the first 398 classes of ImageNet by their first names.
    """

    metadata = ()

    def __init__(
        self, *, of: Literal["simple", "imagenet"] = "simple", doing: list[str] | None = None
    ) -> None:
        if doing is not None and not (doing and all(text.strip() for text in doing)):
            raise PromptError("prompts.doing must be texts, at least one, and none of them blank")
        names = SIMPLE if of == "simple" else _IMAGENET.read_text(encoding="utf-8").splitlines()
        self.prompts = [Prompt(text, {}) for name in names for text in _texts(name, doing)]

    def draw(self, count: int, *, seed: int, iteration: int) -> list[Prompt]:
        """`count` prompts of an iteration, shuffled, each again only if there are too few."""
        chosen = item_indices(len(self.prompts), count, seed=seed, iteration=iteration)
        return [self.prompts[i] for i in chosen]

    def known(self) -> list[Prompt]:
        """All of them."""
        return self.prompts

    def held_out(self, count: int) -> list[Prompt]:
        """`count` of those of training, as DDPO has it, spread evenly or over and over."""
        rounds = -(-count // len(self.prompts))
        if rounds > 1:
            return (self.prompts * rounds)[:count]
        return [self.prompts[i] for i in spread_indices(len(self.prompts), count)]


def _texts(name: str, doing: list[str] | None) -> list[str]:
    if doing is None:
        return [name]
    article = "an" if name[0].lower() in "aeiou" else "a"
    return [f"{article} {name} {activity}" for activity in doing]
