"""Prompts for text rendering: objects with a quoted word on them, for `reward=ocr`."""

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.prompt_list import PromptList
from rlfactory.prompts.ops.scenes import is_held_out

PLACES = (
    'a shop sign that says "{}"',
    'a neon sign above a door that reads "{}"',
    'a birthday cake with "{}" written in icing',
    'a book on a table, its title "{}"',
    'a chalkboard in a cafe with "{}" written on it',
    'a T-shirt with the word "{}" printed on it',
    'a street at night, a poster on the wall says "{}"',
    'a wooden signpost in a forest that says "{}"',
    'a coffee mug with "{}" on its side',
    'the front page of a newspaper with the headline "{}"',
    'a train station, the display above the platform shows "{}"',
    'graffiti on a brick wall that spells "{}"',
)
_WORDS = """
acorn airport almond anchor apple archer artist autumn bakery balcony bamboo banana barrel basket
beacon bishop blanket blossom bottle branch breeze bridge bronze bucket butter button cabbage
cactus camera candle canyon carpet castle cellar ceramic chapel cherry chimney circus citrus cliff
closed coffee comet compass copper coral cotton cradle crystal curtain danger dawn desert diamond
dinner dolphin donkey dragon drum eagle echo elbow ember engine evening exit fabric falcon feather
fence ferry fiddle flame forest fossil fountain friday galaxy garden garlic gentle ginger glacier
globe golden granite grape guitar hammer harbor harvest hazel helmet hidden honey hotel island
ivory jacket jasmine jewel jungle kettle kitchen kitten ladder lantern lemon library lily linen
lizard lobster london magnet mango maple marble market meadow melon mirror monday monkey morning
mountain museum mustard napkin needle nickel night notebook ocean office olive onion open orange
orchid oyster paddle palace paper parade parrot pebble pencil pepper piano picnic pigeon pillow
planet poetry pocket pumpkin puzzle quartz rabbit radio railway ribbon river rocket saddle salmon
school silver spider spring stone summer sunset teapot temple thunder ticket tiger timber tomato
tunnel turtle umbrella valley velvet village violin walnut water welcome willow window winter
wizard wonder yellow zebra zipper new_york san_diego hot_soup big_sale
"""
WORDS = tuple(word.replace("_", " ").title() for word in _WORDS.split())


class Signs(PromptList):
    """Each word in each of 12 places. A quarter of the prompts, by a hash of the text, is held out.

    PromptError where `words` is empty, holds a blank or a quote, or leaves none to evaluate on.
    """

    metadata = ()
    separate = True
    features = ("quoted_word",)
    media = "images"

    def __init__(self, *, words: list[str] | None = None) -> None:
        """
        Args:
            words: A list of words or phrases; null: the two hundred that ship.
        """
        words = list(WORDS) if words is None else list(dict.fromkeys(words))
        if not words or not all(word.strip() and '"' not in word for word in words):
            raise PromptError("prompts.words must be texts, at least one, without quotes or blank")
        texts = [place.format(word) for word in words for place in PLACES]
        super().__init__(
            [Prompt(text, {}) for text in texts if not is_held_out(text)],
            [Prompt(text, {}) for text in texts if is_held_out(text)],
        )
        if not (self.prompts and self.eval_prompts):
            raise PromptError("prompts.words are too few to train and to evaluate on; add some")
