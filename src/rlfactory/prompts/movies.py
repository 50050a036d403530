"""Beginnings of film reviews, for language models to continue."""

from collections.abc import Mapping
from math import ceil
from typing import Any

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.prompt_list import PromptList, shipped_texts
from rlfactory.utils.types import Faults, Fraction

STARTS = shipped_texts("movies")["starts"]


class Movies(PromptList):
    """The 24 `STARTS`, or given `starts`.

    The last `held_out_share` of them, rounded up, are held out for evaluation; with a share of 0
    evaluation takes the training prompts. PromptError where `starts` is empty, holds a blank text,
    or leaves none to train on.
    """

    metadata = ()
    features = ()
    media = "texts"
    longest_tokens = 12

    def __init__(self, *, starts: list[str] | None = None, held_out_share: Fraction = 0.0) -> None:
        """
        Args:
            starts: A list of texts to continue; null: the 24 that ship.
            held_out_share: 0 to below 1: share of them, the last ones, held out for evaluation.
        """
        texts = list(STARTS) if starts is None else list(dict.fromkeys(starts))
        if not texts or not all(text.strip() for text in texts):
            raise PromptError("prompts.starts must be texts, at least one, and none of them blank")
        # rounded first: in floats 0.07 * 100 is slightly more than 7
        held_out = ceil(round(held_out_share * len(texts), 6))
        options = {"starts": texts, "held_out_share": held_out_share}
        for name, message, _ in self.validate(options, {}):
            raise PromptError(f"prompts.{name} {message}")
        prompts = [Prompt(text, {}) for text in texts]
        training = len(prompts) - held_out
        super().__init__(prompts[:training], prompts[training:] or None)

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """What is held out leaves something to train on."""
        from rlfactory.prompts.movies import STARTS  # the method is read alone

        count, share = len({*(options["starts"] or STARTS)}), options["held_out_share"]
        if round(share * count, 6) > count - 1:
            message = f"is {share}, which leaves none of {count} prompts.starts to train on"
            yield "held_out_share", message, "prompts.held_out_share=0"

    def held_out(self, count: int) -> list[Prompt]:
        """`count` held-out prompts in order, cyclically; each repeat draws other noise."""
        return [self.eval_prompts[i % len(self.eval_prompts)] for i in range(count)]
