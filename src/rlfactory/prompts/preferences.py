"""Prompts as people type them, for rewards of preference: a subject in a scene, in a style."""

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.prompt_list import PromptList
from rlfactory.prompts.ops.scenes import is_held_out

PEOPLE = (
    *("an old fisherman", "a young violinist", "a tired astronaut", "a smiling baker"),
    *("a knight in worn armour", "a girl in a red raincoat", "a street musician", "a ballerina"),
    *("a blacksmith", "a scientist with round glasses", "a queen in a velvet gown", "a surfer"),
    *("a monk in orange robes", "a firefighter", "a boy with a kite", "a grandmother"),
    *("a jazz singer", "a cyberpunk courier", "a desert nomad", "a gardener with a straw hat"),
)
DEEDS = (
    *("portrait, looking straight at the viewer", "reading a letter by a window"),
    *("walking through a crowded market", "standing on a cliff above the sea"),
    *("laughing with friends at a long table", "waiting for a train in the rain"),
    *("asleep in an armchair", "holding a lantern in a dark forest"),
    *("seen from behind, facing a city at dusk", "drinking tea in a small kitchen"),
    *("dancing on a rooftop", "repairing an old radio", "feeding birds in a snowy park"),
    *("running down a spiral staircase", "in profile against a plain wall"),
    *("looking up at a sky full of stars", "with a dog at their feet"),
    *("carrying a stack of books", "drifting in a boat on still water"),
)
ANIMALS = (
    *("a red fox", "two owls", "a white horse", "a corgi", "an elephant and her calf"),
    *("a tabby cat", "a snow leopard", "a hummingbird", "a school of silver fish", "a polar bear"),
    *("a golden retriever puppy", "a raven", "a tortoise", "three penguins", "a chameleon"),
    *("a dragon the size of a cat", "a stag with wide antlers", "a red panda", "a jellyfish"),
)
HABITS = (
    *("in fresh snow", "close-up, every hair visible", "wearing a tiny knitted scarf"),
    *("in a field of poppies", "peering out of a hollow tree", "under a full moon"),
    *("in shallow clear water", "on the roof of a yellow taxi", "on a stack of old books"),
    *("in a library", "in morning fog", "among falling leaves", "made of folded paper"),
    *("in a neon-lit alley", "inside a glass bottle", "by a campfire", "in a space suit"),
    *("in the middle of a thunderstorm", "with a crown of flowers", "at a tea party"),
)
PLACES = (
    *("a mountain lake", "a narrow street in an old town", "a lighthouse", "a bamboo forest"),
    *("a floating city", "a desert canyon", "a cabin in the woods", "a harbour full of boats"),
    *("terraced rice fields", "a ruined temple", "a Gothic cathedral", "a rolling vineyard"),
    *("a waterfall in a jungle", "a city of glass towers", "a greenhouse full of ferns"),
    *("a quiet library", "a beach of black sand", "a village under a volcano", "an ice cave"),
)
LIGHTS = (
    *("at sunrise", "at golden hour, long shadows", "under heavy rain", "in deep snow"),
    *("at night, lit by lanterns", "in thick fog", "beneath the northern lights", "in autumn"),
    *("seen from above", "with a storm coming in", "reflected in still water", "in full bloom"),
    *("in the far future", "after everyone has left", "under two moons", "on a summer noon"),
    *("with one small figure walking", "through an open window", "in wide panorama"),
    *("overgrown with ivy", "lit by a single sunbeam"),
)
THINGS = (
    *("a vintage red bicycle", "a bowl of ramen", "a steaming cup of coffee", "a grand piano"),
    *("a glass chess set", "a bouquet of wild flowers", "an old pocket watch", "a steam train"),
    *("a robot made of wood", "a stack of pancakes with berries", "a crystal ball"),
    *("a hot-air balloon", "a leather armchair", "a sliced pomegranate", "a sailing ship"),
    *("a telescope", "a bonsai tree", "a stained-glass lamp", "a pair of muddy boots"),
)
ARRANGEMENTS = (
    *("on a marble table", "seen from directly above", "beside an open window"),
    *("against a deep blue background", "with a sleeping cat next to it", "covered in dew"),
    *("in the palm of a hand", "floating in zero gravity", "half buried in sand"),
    *("behind rain-streaked glass", "in soft morning light", "surrounded by candles"),
    *("in an empty white room", "on a wooden pier", "wrapped in vines", "in a shop window"),
    *("cut away to show the inside", "at the edge of a cliff", "made of ice"),
    *("to the left of a tall blue vase",),
)
STYLES = (
    *("a photograph, 35mm film", "an oil painting", "a watercolour", "concept art"),
    *("an anime illustration", "a pencil sketch", "a studio photograph, shallow depth of field"),
    *("a Japanese woodblock print", "a 3D render", "a children's book illustration"),
    *("a cinematic film still", "pixel art", "an Art Nouveau poster"),
)
"""13, prime to the numbers of subjects and scenes, so that each meets many styles."""
_THEMES = ((PEOPLE, DEEDS), (ANIMALS, HABITS), (PLACES, LIGHTS), (THINGS, ARRANGEMENTS))


class Preferences(PromptList):
    """Each subject in each of its scenes, about 1,500, in one of the `styles`.

    A quarter of the prompts, by a hash of the text, is held out. PromptError where `styles` is
    empty or holds a blank text.
    """

    metadata = ()
    separate = True
    features = ()
    media = "images"

    def __init__(self, *, styles: list[str] | None = None) -> None:
        """
        Args:
            styles: A list of styles, [an oil painting, pixel art]; null: the 13 that ship.
        """
        styles = list(STYLES) if styles is None else list(dict.fromkeys(styles))
        if not styles or not all(style.strip() for style in styles):
            raise PromptError("prompts.styles must be texts, at least one, and none of them blank")
        pairs = [f"{who}, {what}" for whos, whats in _THEMES for who in whos for what in whats]
        texts = [f"{text}, {styles[i % len(styles)]}" for i, text in enumerate(pairs)]
        super().__init__(
            [Prompt(text, {}) for text in texts if not is_held_out(text)],
            [Prompt(text, {}) for text in texts if is_held_out(text)],
        )
