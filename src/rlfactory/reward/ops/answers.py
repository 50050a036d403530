"""The column of the prompts that holds the right answers."""

import logging
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import RewardError, Samples, require_texts

log = logging.getLogger(__name__)


def check_answers(
    prompts: Iterable[Prompt], column: str, fault_of: Callable[[object], str | None]
) -> None:
    """Check the answers of prompts that have the column.

    Args:
        prompts: prompts, each with the key `column`.
        column: the key of the answers.
        fault_of: what is wrong with an answer, in words; None if nothing is.

    Raises:
        RewardError: an answer has a fault; the message names the prompt.
    """
    for prompt in prompts:
        fault = fault_of(prompt.metadata[column])
        if fault is not None:
            raise RewardError(f"the prompt {prompt.text[:60]!r}: its {column} {fault}")


def score_answers(samples: Samples, column: str, score: Callable[[str, object], float]) -> Tensor:
    """`score(completion, answer)` of each sample, `[B]` float32; NaN where there is no answer.

    Raises:
        TypeError: the samples have no texts.
    """
    texts = require_texts(samples)
    answers = [row.get(column) for row in samples.metadata]
    report_missing(samples.prompts, answers, column)
    pairs = zip(texts, answers, strict=True)
    scores = [torch.nan if answer is None else score(text, answer) for text, answer in pairs]
    return torch.tensor(scores, dtype=torch.float32)


def report_missing(prompts: Sequence[str], answers: Sequence[object], column: str) -> None:
    """A line in the log where prompts have no answer."""
    lacking = [prompt for prompt, answer in zip(prompts, answers, strict=True) if answer is None]
    if lacking:
        log.error(
            "%d samples have no score: their prompts have no %s, as %.60r",
            len(lacking),
            column,
            lacking[0],
        )
