"""Verifier: the constraints of its prompt that a completion fulfils."""

from typing import Any

from torch import Tensor

from rlfactory.prompts.ops.constraints import KINDS, is_fulfilled
from rlfactory.reward.base import Samples
from rlfactory.reward.ops.answers import AnswerReward


class Instructions(AnswerReward):
    """`instructions`: the share of a prompt's constraints that its completion fulfils; and
    `all_fulfilled`, 1 where it fulfils all.

    Constraints are those of `prompts=instructions`, or a column of lists of `{kind, value}` of
    other data. An empty completion fulfils none.
    """

    metadata_options = ("constraints_column",)
    main = "instructions"

    def __init__(self, *, constraints_column: str = "constraints") -> None:
        """
        Args:
            constraints_column: Key of each prompt's constraints, a list of mappings with `kind` and
                `value`.
        """
        super().__init__(constraints_column)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, in [0, 1], and 0 or 1."""
        share = self.graded(samples, _share)
        return {"instructions": share, "all_fulfilled": (share == 1).float() + 0 * share}

    def fault(self, answer: Any) -> str | None:
        if not isinstance(answer, list) or not answer:
            return f"is {answer!r:.40}; it must be a list of constraints"
        for one in answer:
            if not isinstance(one, dict) or one.get("kind") not in KINDS:
                return f"has {one!r:.60}; its kind must be one of {', '.join(KINDS)}"
        return None


def _share(text: str, constraints: Any) -> float:
    fulfilled = [is_fulfilled(text, one["kind"], one.get("value")) for one in constraints]
    return sum(fulfilled) / len(fulfilled)
