"""Prompts that each ask for one ability of an image generator, by category, to evaluate on.

Written for this project. The categories are like DrawBench's (Saharia et al. 2022), none of whose
prompts is here: scores on these are not scores on DrawBench, which is `prompts=drawbench`.
"""

from typing import Literal, get_args

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.prompt_list import PromptList, shipped_texts

Category = Literal[
    "colors",
    "counting",
    "positions",
    "text",
    "conflicting",
    "combinations",
    "parts",
    "descriptions",
    "rare_words",
    "misspellings",
    "requests",
]
TEXTS = shipped_texts("abilities")
CATEGORIES: tuple[Category, ...] = get_args(Category)


class Abilities(PromptList):
    """Six prompts of each of `categories` (None: all eleven), with the category as their `tag`.

    None is held out. Categories come in turns, so that a smaller evaluation has some of each.
    PromptError where `categories` is empty.
    """

    metadata = ("tag",)
    separate = False
    features = ()
    media = "images"

    def __init__(self, *, categories: list[Category] | None = None) -> None:
        """
        Args:
            categories: Some of colors, counting, positions, text, conflicting, combinations, parts,
                descriptions, rare_words, misspellings, requests; null: all.
        """
        chosen = CATEGORIES if categories is None else tuple(dict.fromkeys(categories))
        if not chosen:
            raise PromptError(f"prompts.categories is empty; give some of {', '.join(CATEGORIES)}")
        turns = zip(*(TEXTS[name] for name in chosen), strict=True)
        super().__init__(
            [
                Prompt(text, {"tag": name})
                for texts in turns
                for name, text in zip(chosen, texts, strict=True)
            ]
        )

    def held_out(self, count: int) -> list[Prompt]:
        """The first `count` prompts, or all of them."""
        return [*self.prompts[:count]]
