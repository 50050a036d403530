"""Does a completion have the form that a pattern describes?"""

import logging
from typing import Any, Literal

import regex
import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples, completions
from rlfactory.types import Positive, PositiveInt

log = logging.getLogger(__name__)


class RegexFormat(Reward):
    """`regex`: 1 where a pattern matches the completion, otherwise 0; or how often, of `limit`.

    `count` is the share of `limit` matches that do not overlap, and are not empty, at most 1.
    `timeout` is in seconds for one completion: NaN where it does not suffice.
    """

    media = "texts"
    metadata = ()
    main = "regex"
    good = 1.0

    def __init__(
        self,
        *,
        pattern: str,
        match: Literal["fullmatch", "search", "count"] = "fullmatch",
        limit: PositiveInt = 1,
        timeout: Positive = 1.0,
    ) -> None:
        if limit > 1 and match != "count":
            raise RewardError(f"reward.limit={limit} is for counting; type reward.match=count")
        self.pattern = _compiled(pattern)
        self.match = match
        self.limit = limit
        self.timeout = timeout

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        found: list[float] = []
        for text in completions(samples):
            try:
                found.append(self._grade(text))
            except TimeoutError:
                log.error("reward regex gave no answer within %g s for %.80r", self.timeout, text)
                found.append(torch.nan)
        return {"regex": torch.tensor(found, dtype=torch.float32)}

    def _grade(self, text: str) -> float:
        # other threads go on while it searches
        how: dict[str, Any] = {"timeout": self.timeout, "concurrent": True}
        if self.match == "fullmatch":
            return float(self.pattern.fullmatch(text, **how) is not None)
        if self.match == "search":
            return float(self.pattern.search(text, **how) is not None)
        count = 0
        for match in self.pattern.finditer(text, **how):
            count += match.end() > match.start()
            if count == self.limit:
                break
        return count / self.limit


def _compiled(pattern: str) -> Any:
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise RewardError(f"reward.pattern={pattern} is no regular expression: {error}") from error
