"""The column of the prompts that holds the right answers, and patterns that look for them."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import regex
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


def compiled(pattern: str, key: str) -> Any:
    """A pattern of the package `regex`; RewardError, which names the option, where it is none."""
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise RewardError(f"{key}={pattern} is no regular expression: {error}") from error


def last_match(pattern: Any, text: str, timeout: float) -> str | None:
    """What the last match says: its first group, or all of it where the pattern has no group.

    Returns:
        The text, stripped of nothing; None where nothing matches.

    Raises:
        TimeoutError: the search took longer than `timeout` seconds; there is a line in the log.
    """
    found = None
    try:
        # concurrent releases the GIL, so that sampling continues during a long search
        for match in pattern.finditer(text, timeout=timeout, concurrent=True):
            found = match[1 if pattern.groups else 0] or ""
    except TimeoutError:
        log.error("a search for %.60r took longer than %g s in %.80r", pattern, timeout, text)
        raise
    return found
