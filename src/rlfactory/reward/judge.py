"""LLM-as-a-judge: scores that a language model writes, which may see images, on an
OpenAI-compatible server.
"""

import logging
import math
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import (
    RewardError,
    Samples,
    require_images,
    require_sources,
    require_texts,
    require_videos,
)
from rlfactory.reward.client.openai_client import PROMPT_FIELD, AskingReward
from rlfactory.reward.ops.answers import (
    ANSWER,
    check_answer_field,
    check_answers,
    compiled,
    text_fault,
)
from rlfactory.utils.images import evenly_spaced
from rlfactory.utils.types import PositiveInt

log = logging.getLogger(__name__)

RESPONSE_FIELD = "{response}"

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
"""Flow-GRPO's question to UnifiedReward (`flow_grpo/rewards.py`, `unifiedreward_score_sglang`)."""
# the published pattern, but for `(?!...)`: without it, a score of 10 is read as 1
UNIFIED_PATTERN = r"Final Score:\s*([1-5](?:\.\d+)?)(?!\.?\d)"


def parse_scores(
    answers: Sequence[str | None], pattern: re.Pattern[str], low: float, high: float
) -> Tensor:
    """The score in each answer, `[B]` float32: the group of `pattern` in its first match.

    NaN where there is no answer or no number, or where it is outside [`low`, `high`].
    """
    scores = [_score(answer, pattern, low, high) for answer in answers]
    pairs = zip(answers, scores, strict=True)
    unread = [answer for answer, score in pairs if answer is not None and math.isnan(score)]
    if unread:
        log.error("%d answers hold no score; the first says: %.200r", len(unread), unread[0])
    return torch.tensor(scores, dtype=torch.float32)


def _score(answer: str | None, pattern: re.Pattern[str], low: float, high: float) -> float:
    match = None if answer is None else pattern.search(answer)
    try:
        score = math.nan if match is None else float(match[1])
    except (TypeError, ValueError):  # the group is empty, or no number
        return math.nan
    return score if low <= score <= high else math.nan


class UnifiedReward(AskingReward):
    """`unifiedreward`: UnifiedReward's final score, 1 to 5, divided by 5 (Flow-GRPO).

    The question is the published one; images are resized to 512 x 512 by default. NaN without a
    readable answer.
    """

    main = "unifiedreward"

    def __init__(
        self,
        *,
        model: str = "UnifiedReward-7b-v1.5",
        image_size: PositiveInt | None = 512,
        max_tokens: PositiveInt = 1024,
        **options: Any,
    ) -> None:
        super().__init__(model=model, image_size=image_size, **options)
        self.max_tokens = max_tokens
        self.pattern = re.compile(UNIFIED_PATTERN)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0.2, 1]."""
        questions = [UNIFIED.replace(PROMPT_FIELD, prompt) for prompt in samples.prompts]
        images = [[image] for image in require_images(samples)]
        answers = self.answers(images, questions, self.max_tokens)
        return {"unifiedreward": parse_scores(answers, self.pattern, 1.0, 5.0) / 5}


class Judge(AskingReward):
    """A number that a language model writes, from `low` to `high`, in [0, 1].

    `question` goes out with what a sample shows, `{prompt}` replaced by its prompt; the score is
    the group of `pattern` in the answer. NaN without a readable answer. RewardError where an option
    is invalid.
    """

    main = "vlm_judge"

    def __init__(
        self,
        *,
        question: str,
        pattern: str = r"Score:\s*([-+]?\d+(?:\.\d+)?)",
        low: float = 0,
        high: float = 10,
        max_tokens: PositiveInt = 512,
        **options: Any,
    ) -> None:
        """
        Args:
            question: {prompt} is replaced.
            pattern: Finds the score in the answer: a regular expression with one group.
            low: The model's lowest score, which becomes 0.
            high: Its highest score, which becomes 1.
        """
        self.question = question
        self.pattern = _with_group(pattern)
        if not low < high:
            raise RewardError(f"reward.high={high} must be larger than reward.low={low}")
        self.low, self.high, self.max_tokens = low, high, max_tokens
        super().__init__(**options)
        if PROMPT_FIELD not in question:
            log.warning("reward.question has no %s, so the model does not see it", PROMPT_FIELD)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        answers = self.answers(self._shown(samples), self._questions(samples), self.max_tokens)
        scores = parse_scores(answers, self.pattern, self.low, self.high)
        return {self.main: (scores - self.low) / (self.high - self.low)}

    def _questions(self, samples: Samples) -> list[str]:
        return [self.question.replace(PROMPT_FIELD, prompt) for prompt in samples.prompts]

    @abstractmethod
    def _shown(self, samples: Samples) -> list[list[Tensor]]:
        """The images that go out with each question."""


class VLMJudge(Judge):
    """`vlm_judge`: a `Judge` of images; with `shows_source` the picture that was edited is sent
    before each image.
    """

    def __init__(self, *, shows_source: bool = False, **options: Any) -> None:
        """
        Args:
            shows_source: Send the picture that was edited before each image (prompts with
                pictures).
        """
        super().__init__(**options)
        self.shows_source = shows_source

    def _shown(self, samples: Samples) -> list[list[Tensor]]:
        if not self.shows_source:
            return [[image] for image in require_images(samples)]
        pairs = zip(require_sources(samples), require_images(samples), strict=True)
        return [[source, image] for source, image in pairs]


class VideoJudge(Judge):
    """`vlm_judge` of videos: `frames` evenly spaced frames go out with each question, in order."""

    media = "videos"

    def __init__(self, *, frames: PositiveInt = 4, **options: Any) -> None:
        """
        Args:
            frames: Evenly spaced frames of each video that are sent, in order.
            concurrency: Simultaneous requests, one video each.
        """
        super().__init__(**options)
        self.frames = frames

    def _shown(self, samples: Samples) -> list[list[Tensor]]:
        videos = require_videos(samples)
        return [[*video] for video in videos[:, evenly_spaced(videos.shape[1], self.frames)]]


class LLMJudge(Judge):
    """`llm_judge`: a `Judge` of texts, whose question shows the completion as `{response}` and, of
    the prompt's metadata, a reference answer or rubric as `{answer}`.
    """

    media = "texts"
    main = "llm_judge"
    absent = ("image_size",)
    metadata_options = ("answer_column",)

    def __init__(self, *, question: str, answer_column: str | None = None, **options: Any) -> None:
        """
        Args:
            question: {prompt}, {response} and {answer} are replaced.
            answer_column: Key of each prompt's reference answer or rubric, which {answer} in the
                question stands for; null: none.
            concurrency: Simultaneous requests, one text each.
        """
        check_answer_field("question", question, answer_column)
        if RESPONSE_FIELD not in question:
            raise RewardError(
                f"reward.question has no {RESPONSE_FIELD}, for the text that is to be judged"
            )
        self.answer_column = answer_column
        self.metadata = () if answer_column is None else (answer_column,)  # type: ignore[misc]
        super().__init__(question=question, **options)

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """Each prompt has an answer where the question shows one."""
        prompts = [*prompts]
        super().check_prompts(prompts)
        if self.answer_column is not None:
            check_answers(prompts, self.answer_column, text_fault)

    def _questions(self, samples: Samples) -> list[str]:
        column = self.answer_column
        answers = [None if column is None else row[column] for row in samples.metadata]
        told = zip(samples.prompts, require_texts(samples), answers, strict=True)
        return [self._filled({PROMPT_FIELD: p, RESPONSE_FIELD: r, ANSWER: a}) for p, r, a in told]

    def _filled(self, values: Mapping[str, object]) -> str:
        """The question with all values put in at once: fields within a value stay as they are."""
        fields = "|".join(map(re.escape, values))
        return re.sub(fields, lambda match: str(values[match[0]]), self.question)

    def _shown(self, samples: Samples) -> list[list[Tensor]]:
        return [[] for _ in samples.prompts]


def _with_group(pattern: str) -> Any:
    found = compiled(pattern, "reward.pattern")
    if found.groups != 1:
        raise RewardError(
            f"reward.pattern={pattern} must have one group, around the number; it has"
            f" {found.groups}"
        )
    return found
