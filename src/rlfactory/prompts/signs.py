"""Prompts for text rendering: objects with a quoted word on them, for `reward=ocr`."""

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.prompts.ops.prompt_list import PromptList, shipped_texts

PLACES, WORDS = shipped_texts("signs").values()


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
        sides = ([t for t in texts if is_held_out(t) == held] for held in (False, True))
        super().__init__(*([Prompt(text, {}) for text in side] for side in sides))
        if not (self.prompts and self.eval_prompts):
            raise PromptError("prompts.words are too few to train and to evaluate on; add some")
