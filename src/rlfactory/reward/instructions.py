"""Verifier: the constraints of its prompt that a completion fulfils."""

from typing import Any

from torch import Tensor

from rlfactory.prompts.instructions import KINDS, fewest_words, is_fulfilled
from rlfactory.reward.base import Samples
from rlfactory.reward.ops.answers import AnswerReward
from rlfactory.utils.types import PositiveInt


class Instructions(AnswerReward):
    """`instructions`: the share of a prompt's constraints that its completion fulfils; and
    `all_fulfilled`, 1 where it fulfils all.

    Constraints are those of `prompts=instructions`, or a column of lists of `{kind, value}` of
    other data. A completion that is too short to be an answer fulfils none.
    """

    metadata_options = ("constraints_column",)
    main = "instructions"

    def __init__(
        self, *, constraints_column: str = "constraints", fewest_words: PositiveInt = 5
    ) -> None:
        """
        Args:
            constraints_column: Key of each prompt's constraints, a list of mappings with `kind` and
                `value`.
            fewest_words: Words of an answer, at least, where its constraints ask for no fewer:
                `Once` begins with "Once", and answers nothing.
        """
        super().__init__(constraints_column)
        self._fewest = fewest_words

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, in [0, 1], and 0 or 1."""
        share = self.graded(samples, self._share)
        return {"instructions": share, "all_fulfilled": (share == 1).float() + 0 * share}

    def fault(self, answer: Any) -> str | None:
        if not isinstance(answer, list) or not answer:
            return f"is {answer!r:.40}; it must be a list of constraints"
        for one in answer:
            if not isinstance(one, dict) or one.get("kind") not in KINDS:
                return f"has {one!r:.60}; its kind must be one of {', '.join(KINDS)}"
        return None

    def _share(self, text: str, constraints: Any) -> float:
        given = [(one["kind"], one.get("value")) for one in constraints]
        asked = [fewest_words(kind, value) or self._fewest for kind, value in given]
        if len(text.split()) < min(self._fewest, *asked):
            return 0.0
        return sum(is_fulfilled(text, *one) for one in given) / len(given)
