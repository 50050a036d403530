"""Format reward: whether a completion matches a regular expression."""

import logging
from functools import lru_cache, partial
from typing import Any, Literal

import regex
import torch
from torch import Tensor

from rlfactory.reward.base import RewardError, Samples, require_texts
from rlfactory.reward.ops.answers import ANSWER, AnswerReward, check_answer_field, compiled
from rlfactory.utils.types import Positive, PositiveInt

log = logging.getLogger(__name__)


class RegexFormat(AnswerReward):
    """`regex`: 1 where `pattern` matches the completion, otherwise 0.

    With `match="count"` the score is `min(n, limit) / limit`, `n` the non-overlapping, non-empty
    matches. The characters of an answer are matched as they are. RewardError for an invalid
    pattern, or prompts without answers.
    """

    metadata_options = ("answer_column",)
    main = "regex"

    def __init__(
        self,
        *,
        pattern: str,
        match: Literal["fullmatch", "search", "count"] = "fullmatch",
        limit: PositiveInt = 1,
        answer_column: str | None = None,
        timeout: Positive = 1.0,
    ) -> None:
        """
        Args:
            pattern: In the syntax of Python's package regex.
            match: fullmatch | search | count.
            limit: >= 1; count: the number of matches for a score of 1.
            answer_column: Key of each prompt's answer, which {answer} in the pattern stands for;
                null: none.
            timeout: > 0: seconds for one completion, after which it has no score.
        """
        if limit > 1 and match != "count":
            raise RewardError(f"reward.limit={limit} is for match=count; type reward.match=count")
        check_answer_field("pattern", pattern, answer_column)
        self.pattern = compiled(pattern.replace(ANSWER, "(?:x)"), "reward.pattern")
        self.of_answer = lru_cache(maxsize=1024)(partial(_with_answer, pattern))
        super().__init__(answer_column)
        self.match = match
        self.limit = limit
        self.timeout = timeout

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        if self.column is not None:
            by_answer = self.graded(samples, lambda t, a: self._grade(t, self.of_answer(str(a))))
            return {"regex": by_answer}
        scores = [self._grade(text, self.pattern) for text in require_texts(samples)]
        return {"regex": torch.tensor(scores, dtype=torch.float32)}

    def _grade(self, text: str, pattern: Any) -> float:
        try:
            return self._share(text, pattern)
        except TimeoutError:
            log.error("reward regex gave no answer within %g s for %.80r", self.timeout, text)
            return torch.nan

    def _share(self, text: str, pattern: Any) -> float:
        # concurrent releases the GIL, so that sampling continues during a long search
        options: dict[str, Any] = {"timeout": self.timeout, "concurrent": True}
        if self.match == "fullmatch":
            return float(pattern.fullmatch(text, **options) is not None)
        if self.match == "search":
            return float(pattern.search(text, **options) is not None)
        count = 0
        for match in pattern.finditer(text, **options):
            count += match.end() > match.start()
            if count == self.limit:
                break
        return count / self.limit


def _with_answer(pattern: str, answer: str) -> Any:
    """The pattern with `{answer}` as a group that matches the answer's characters."""
    return regex.compile(pattern.replace(ANSWER, f"(?:{regex.escape(answer)})"))
