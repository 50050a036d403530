"""Prompts for text rendering: objects with a quoted word on them, for `reward=ocr`."""

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.prompts.ops.prompt_list import PromptList, shipped_texts
from rlfactory.utils.types import PositiveInt

PLACES, WORDS = shipped_texts("signs").values()


class Signs(PromptList):
    """Each word in each place. A quarter of the prompts, by a hash of the text, is held out.

    PromptError where `words` is empty, holds a blank or a quote, or leaves none to evaluate on, or
    a place doesn't quote its word.
    """

    metadata = ()
    separate = True
    features = ("quoted_word",)
    media = "images"

    def __init__(
        self,
        *,
        words: list[str] | None = None,
        places: list[str] | None = None,
        longest: PositiveInt | None = None,
    ) -> None:
        """
        Args:
            words: A list of words or phrases; null: the two hundred that ship.
            places: A list of texts with "{}", quotes and all, for the word; null: the twelve that
                ship.
            longest: The letters of the longest word that is taken; null: any number.
        """
        words = list(WORDS) if words is None else list(dict.fromkeys(words))
        if not words or not all(word.strip() and '"' not in word for word in words):
            raise PromptError("prompts.words must be texts, at least one, without quotes or blank")
        words = [word for word in words if longest is None or len(word) <= longest]
        places = list(PLACES) if places is None else places
        if not places or not all(place.count('"{}"') == 1 for place in places):
            raise PromptError(
                'prompts.places must be texts, at least one, each with "{}" in it once'
            )
        texts = [place.replace("{}", word) for word in words for place in places]
        sides = ([t for t in texts if is_held_out(t) == held] for held in (False, True))
        super().__init__(*([Prompt(text, {}) for text in side] for side in sides))
        if not (self.prompts and self.eval_prompts):
            limit = "" if longest is None else f" of at most prompts.longest={longest} letters"
            raise PromptError(
                f"prompts.words{limit} are too few to train and to evaluate on; add some"
            )
