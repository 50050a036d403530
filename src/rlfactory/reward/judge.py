"""Scores that a vision-language model writes, at any server that speaks OpenAI's protocol."""

import logging
import math
import re
from collections.abc import Sequence

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples, pictures
from rlfactory.reward.chat import KEY, PLACE, Chat, filled
from rlfactory.reward.http import Patience
from rlfactory.types import NonNegativeInt, Positive, PositiveInt

log = logging.getLogger(__name__)

UNIFIED = (
    "<image>\nYou are given a text caption and a generated image based on that caption. Your task"
    " is to evaluate this image based on two key criteria:\n1. Alignment with the Caption: Assess"
    " how well this image aligns with the provided caption. Consider the accuracy of depicted"
    " objects, their relationships, and attributes as described in the caption.\n2. Overall Image"
    " Quality: Examine the visual quality of this image, including clarity, detail preservation,"
    " color accuracy, and overall aesthetic appeal.\nBased on the above criteria, assign a score"
    " from 1 to 5 after 'Final Score:'.\nYour task is provided as follows:\nText Caption:"
    " [{prompt}]"
)
"""As Flow-GRPO asks UnifiedReward (`flow_grpo/rewards.py`, `unifiedreward_score_sglang`)."""
# the published pattern, which reads 1 in 10, and no digits more
UNIFIED_PATTERN = r"Final Score:\s*([1-5](?:\.\d+)?)(?!\.?\d)"


def marks(
    answers: Sequence[str | None], pattern: re.Pattern[str], low: float, high: float
) -> Tensor:
    """The number that `pattern`'s group finds first in each answer, `[B]` float32.

    NaN where there is no answer or no number, or where it is outside [`low`, `high`].
    """
    found = [math.nan if said is None else _mark(said, pattern, low, high) for said in answers]
    pairs = zip(answers, found, strict=True)
    unread = [said for said, mark in pairs if said is not None and math.isnan(mark)]
    if unread:
        log.error("%d answers hold no score; the first says: %.200r", len(unread), unread[0])
    return torch.tensor(found, dtype=torch.float32)


def _mark(said: str, pattern: re.Pattern[str], low: float, high: float) -> float:
    match = pattern.search(said)
    try:
        mark = math.nan if match is None else float(match[1])
    except (TypeError, ValueError):  # the group is empty, or no number
        return math.nan
    return mark if low <= mark <= high else math.nan


class UnifiedReward(Reward):
    """`unifiedreward`: the final score that UnifiedReward gives, from 1 to 5, over 5.

    Pictures are resized to 512 x 512, the template is the published one.
    """

    media = "images"
    metadata = ()
    good = 1.0
    main = "unifiedreward"

    def __init__(
        self,
        *,
        url: str,
        model: str = "UnifiedReward-7b-v1.5",
        key_env: str = KEY,
        image_size: PositiveInt | None = 512,
        max_tokens: PositiveInt = 1024,
        concurrency: PositiveInt = 16,
        connect_timeout: Positive = 5.0,
        timeout: Positive = 120.0,
        retries: NonNegativeInt = 5,
        backoff: Positive = 0.5,
    ) -> None:
        self.chat = Chat(
            url,
            model=model,
            key_env=key_env,
            image_size=image_size,
            max_tokens=max_tokens,
            concurrency=concurrency,
            patience=Patience(connect_timeout, timeout, retries, backoff),
        )
        self.pattern = re.compile(UNIFIED_PATTERN)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0.2, 1]."""
        questions = [filled(UNIFIED, prompt) for prompt in samples.prompts]
        answers = self.chat.answers(pictures(samples), questions)
        return {"unifiedreward": marks(answers, self.pattern, 1.0, 5.0) / 5}


class VLMJudge(Reward):
    """`vlm_judge`: the number that a model writes, from `low` to `high`, scaled to [0, 1].

    `question` is asked of each picture, with the prompt in the place of `{prompt}`; the group of
    `pattern` is what is read of the answer.
    """

    media = "images"
    metadata = ()
    good = 1.0
    main = "vlm_judge"

    def __init__(
        self,
        *,
        url: str,
        model: str,
        question: str,
        pattern: str = r"Score:\s*([-+]?\d+(?:\.\d+)?)",
        low: float = 0.0,
        high: float = 10.0,
        key_env: str = KEY,
        image_size: PositiveInt | None = None,
        max_tokens: PositiveInt = 512,
        concurrency: PositiveInt = 16,
        connect_timeout: Positive = 5.0,
        timeout: Positive = 120.0,
        retries: NonNegativeInt = 5,
        backoff: Positive = 0.5,
    ) -> None:
        self.question = question
        self.pattern = _compiled(pattern)
        if not low < high:
            raise RewardError(f"reward.high={high} must be more than reward.low={low}")
        self.low, self.high = low, high
        self.chat = Chat(
            url,
            model=model,
            key_env=key_env,
            image_size=image_size,
            max_tokens=max_tokens,
            concurrency=concurrency,
            patience=Patience(connect_timeout, timeout, retries, backoff),
        )
        if PLACE not in question:
            log.warning("reward.question has no %s: the model is not told the prompt", PLACE)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        questions = [filled(self.question, prompt) for prompt in samples.prompts]
        answers = self.chat.answers(pictures(samples), questions)
        found = marks(answers, self.pattern, self.low, self.high)
        return {"vlm_judge": (found - self.low) / (self.high - self.low)}


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise RewardError(f"reward.pattern={pattern} is no regular expression: {error}") from error
    if found.groups != 1:
        raise RewardError(
            f"reward.pattern={pattern} must have one group, around the number; it has"
            f" {found.groups}"
        )
    return found
