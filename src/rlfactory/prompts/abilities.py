"""Prompts that each ask for one ability of an image generator, by category, to evaluate on.

Written for this project. The categories are like DrawBench's (Saharia et al. 2022), none of whose
prompts is here: scores on these are not scores on DrawBench, which is `prompts=drawbench`.
"""

from typing import Literal, get_args

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.prompt_list import PromptList

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
TEXTS: dict[Category, tuple[str, ...]] = {
    "colors": (
        "a purple tractor in a green field",
        "an orange kettle beside a white teapot",
        "a pink penguin",
        "a yellow door in a grey brick wall",
        "a black rose in a red vase",
        "three umbrellas: one blue, one green and one brown",
    ),
    "counting": (
        "four candles on a windowsill",
        "exactly seven apples in a row",
        "two giraffes and one ostrich",
        "a bench with three people and five pigeons",
        "one sock",
        "nine buttons laid out as a square",
    ),
    "positions": (
        "a laptop under a wooden table",
        "a lemon to the left of a grater",
        "a bicycle behind a parked van",
        "a candle between two mirrors",
        "a goat on top of a haystack, a hen to its right",
        "a stamp in the upper right corner of an envelope",
    ),
    "text": (
        'a paper bag with "Fresh Pears" printed on it',
        'a lighthouse with the word "North" painted on its tower',
        'an airport board that shows "Delayed"',
        'a cake with "Happy Retirement, Odile" in blue icing',
        'a license plate that reads "QX 4081"',
        'a tattoo on a forearm that says "still here"',
    ),
    "conflicting": (
        "a snowman sunbathing in a desert",
        "a square bicycle wheel",
        "a fish perched on a branch, singing",
        "a candle that burns under water",
        "a tiger afraid of a mouse",
        "rain falling upwards from a lake",
    ),
    "combinations": (
        "a teapot made of moss",
        "an armchair grown from coral",
        "a hedgehog with pencils for spines",
        "a violin with the skin of a watermelon",
        "a snail whose shell is a small cathedral",
        "a lamp with the shape and texture of an artichoke",
    ),
    "parts": (
        "a table with three legs, one of them shorter than the others",
        "a face with one green eye and one brown eye",
        "a cup without a handle beside a cup with two handles",
        "a dog with its left ear up and its right ear down",
        "the sole of a shoe",
        "a clock with its hands at ten past four",
    ),
    "descriptions": (
        "a small device with two round lenses, held before the eyes to see far things near",
        "a cold dessert of frozen cream, served in a cone of thin waffle",
        "the striped animal that looks like a horse, drinking from a pond",
        "a vehicle with a single wheel, ridden by a performer in a ring",
        "a flat board on four small wheels that is ridden standing",
        "a glass with sand in two bulbs, which measures a few minutes",
    ),
    "rare_words": (
        "a pangolin on a forest path",
        "a zoetrope on a mahogany desk",
        "a brown dodo beside an astrolabe",
        "an okapi among ferns",
        "a trebuchet in front of a crenellated wall",
        "a sitar and a hurdy-gurdy against a wall",
    ),
    "misspellings": (
        "a rainbou over a vilage",
        "an eliphant in a bathtubb",
        "a gaint sunflwer in a flowrpot",
        "a chese sandwitch on a blue plait",
        "two kittins asleap in a baskit",
        "a castel on a clif by the oshun",
    ),
    "requests": (
        "my grandfather's workshop at dusk: planes and chisels on pegs, curls of wood on the floor,"
        " a radio on the shelf, one bulb over the bench",
        "a museum of the future where visitors in silver coats look at a phone in a glass case",
        "an otter as the captain of a paper boat, in the style of a travel poster of the 1930s",
        "a city built on the back of a sleeping giant, seen from a balloon in the early morning",
        "two robots at a chess board in a rainy park, one of them losing and taking it badly",
        "the moment before a wave breaks over a pianist who goes on playing on the beach",
    ),
}
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
