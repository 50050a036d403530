"""Format reward: whether a completion matches a regular expression."""

import logging
from typing import Any, Literal

import regex
import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples, require_texts
from rlfactory.utils.types import Positive, PositiveInt

log = logging.getLogger(__name__)


class RegexFormat(Reward):
    """`regex`: 1 where `pattern` matches the completion, otherwise 0.

    With `match="count"` the score is `min(n, limit) / limit`, `n` the non-overlapping, non-empty
    matches. `timeout` is in seconds for one completion, which scores NaN beyond it. RewardError for
    an invalid pattern.
    """

    media = "texts"
    metadata = ()
    main = "regex"
    best_score = 1.0

    def __init__(
        self,
        *,
        pattern: str,
        match: Literal["fullmatch", "search", "count"] = "fullmatch",
        limit: PositiveInt = 1,
        timeout: Positive = 1.0,
    ) -> None:
        if limit > 1 and match != "count":
            raise RewardError(f"reward.limit={limit} is for match=count; type reward.match=count")
        self.pattern = _compiled(pattern)
        self.match = match
        self.limit = limit
        self.timeout = timeout

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        scores: list[float] = []
        for text in require_texts(samples):
            try:
                scores.append(self._grade(text))
            except TimeoutError:
                log.error("reward regex gave no answer within %g s for %.80r", self.timeout, text)
                scores.append(torch.nan)
        return {"regex": torch.tensor(scores, dtype=torch.float32)}

    def _grade(self, text: str) -> float:
        # concurrent releases the GIL, so that sampling continues during a long search
        options: dict[str, Any] = {"timeout": self.timeout, "concurrent": True}
        if self.match == "fullmatch":
            return float(self.pattern.fullmatch(text, **options) is not None)
        if self.match == "search":
            return float(self.pattern.search(text, **options) is not None)
        count = 0
        for match in self.pattern.finditer(text, **options):
            count += match.end() > match.start()
            if count == self.limit:
                break
        return count / self.limit


def _compiled(pattern: str) -> Any:
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise RewardError(f"reward.pattern={pattern} is no regular expression: {error}") from error
