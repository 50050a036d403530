"""Verifier: whether a completion is the answer of its prompt, as a text."""

import string
import unicodedata

import torch
from torch import Tensor

from rlfactory.reward.base import Samples
from rlfactory.reward.ops.answers import AnswerReward, compiled, last_match
from rlfactory.utils.types import Positive

_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Exact(AnswerReward):
    """`exact`: 1 where the completion equals the answer of its prompt, otherwise 0.

    Both are compared in Unicode's form NFKC without white space around them, white space within as
    one space. With `extract`, a completion without a match scores 0. RewardError for an invalid
    pattern, or prompts without answers.
    """

    metadata_options = ("answer_column",)
    main = "exact"

    def __init__(
        self,
        *,
        answer_column: str = "answer",
        extract: str | None = None,
        ignore_case: bool = False,
        ignore_punctuation: bool = False,
        timeout: Positive = 1.0,
    ) -> None:
        """
        Args:
            answer_column: Key of each prompt's answer: a text, a number, or a list of which any is
                right.
            extract: A regular expression: its last match, or the match's first group, is compared;
                null: the completion.
            ignore_case: Compare without regard to case.
            ignore_punctuation: Compare without ASCII punctuation.
            timeout: > 0: seconds for one completion's extract, after which it has no score.
        """
        super().__init__(answer_column)
        self.extract = None if extract is None else compiled(extract, "reward.extract")
        self.ignore_case, self.ignore_punctuation = ignore_case, ignore_punctuation
        self.timeout = timeout

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, 0 or 1."""
        return {"exact": self.graded(samples, self._grade)}

    def _grade(self, text: str, answer: object) -> float:
        if self.extract is not None:
            try:
                found = last_match(self.extract, text, self.timeout)
            except TimeoutError:
                return torch.nan
            if found is None:
                return 0.0
            text = found
        return float(self.normalise_text(text) in self._accepted(answer))

    def _accepted(self, answer: object) -> set[str]:
        answers = answer if isinstance(answer, list | tuple) else [answer]
        return {self.normalise_text(str(one)) for one in answers}

    def fault(self, answer: object) -> str | None:
        if answer is None or isinstance(answer, dict):
            return f"is {answer!r:.40}; it must be a text, a number, or a list of those"
        accepted = self._accepted(answer)
        if not accepted or "" in accepted:
            return f"is {answer!r:.40}, of which nothing is left to compare"
        return None

    def normalise_text(self, text: str) -> str:
        """A text in the form in which it is compared."""
        text = unicodedata.normalize("NFKC", text)
        if self.ignore_case:
            text = text.casefold()
        if self.ignore_punctuation:
            text = text.translate(_PUNCTUATION)
        return " ".join(text.split())
