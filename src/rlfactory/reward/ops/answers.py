"""The column of the prompts that holds the right answers, and patterns that look for them."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import regex
import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.row_forms import is_null
from rlfactory.reward.base import Reward, RewardError, Samples, require_texts

log = logging.getLogger(__name__)

ANSWER = "{answer}"
"""What stands in an option's text for the answer of a prompt."""


class AnswerReward(Reward):
    """A reward that reads a right answer, or tests, under the key `column` of the prompts' metadata
    (None: there are none); RewardError where prompts lack one that can be used.
    """

    media = "texts"
    best_score = 1.0

    def __init__(self, column: str | None) -> None:
        self.column = column
        self.metadata = () if column is None else (column,)  # type: ignore[misc]

    def fault(self, answer: Any) -> str | None:
        """The fault of what a prompt has under `column`, in words; None if nothing is."""
        return text_fault(answer)

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """RewardError for the first prompt without an answer that can be used."""
        prompts = [*prompts]
        super().check_prompts(prompts)
        if self.column is not None:
            check_answers(prompts, self.column, self.fault)

    def answers(self, samples: Samples) -> list[Any]:
        """The answer of each sample, None where there is none; then there is a line in the log."""
        assert self.column is not None
        answers = [_answer(row.get(self.column)) for row in samples.metadata]
        lacking = [p for p, answer in zip(samples.prompts, answers, strict=True) if answer is None]
        if lacking:
            message = "%d samples have no score: their prompts have no %s, as %.60r"
            log.error(message, len(lacking), self.column, lacking[0])
        return answers

    def graded(self, samples: Samples, grade: Callable[[str, Any], float]) -> Tensor:
        """`grade(completion, answer)` of each sample, `[B]` float32; NaN where it has no answer."""
        pairs = zip(require_texts(samples), self.answers(samples), strict=True)
        scores = [torch.nan if answer is None else grade(text, answer) for text, answer in pairs]
        return torch.tensor(scores, dtype=torch.float32)


def _answer(value: Any) -> Any:
    """An answer, None where there is none: a data frame has NaN then, which is no number."""
    return None if is_null(value) else value


def check_answers(
    prompts: Iterable[Prompt], column: str, fault_of: Callable[[object], str | None]
) -> None:
    """RewardError, which names the prompt, for the first answer under `column` with a fault."""
    for prompt in prompts:
        fault = fault_of(_answer(prompt.metadata[column]))
        if fault is not None:
            raise RewardError(f"the prompt {prompt.text[:60]!r}: its {column} {fault}")


def text_fault(answer: object) -> str | None:
    """Words for an answer that is neither a text nor a number; None for one that is."""
    if isinstance(answer, str | int | float):
        return None
    return f"is {answer!r:.40}; it must be a text or a number"


def check_answer_field(option: str, text: str, column: str | None) -> None:
    """RewardError where the `{answer}` of an option's text has no column, or a column none."""
    if column is not None and ANSWER not in text:
        raise RewardError(
            f"reward.answer_column={column} has no effect: reward.{option} has no {ANSWER}; type"
            " reward.answer_column=null"
        )
    if column is None and ANSWER in text:
        raise RewardError(
            f"reward.{option} has {ANSWER}, and no column of answers is named; type"
            " reward.answer_column=answer"
        )


def compiled(pattern: str, key: str) -> Any:
    """A pattern of the package `regex`; RewardError, which names the option, where it is none."""
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise RewardError(f"{key}={pattern} is no regular expression: {error}") from error


def last_match(pattern: Any, text: str, timeout: float) -> str | None:
    """The first group of the last match, or all of it where the pattern has no group; None where
    nothing matches.

    TimeoutError, and a line in the log, where the search takes longer than `timeout` seconds.
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
