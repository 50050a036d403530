"""Verifier: whether a completion's answer equals that of its prompt as mathematics."""

import importlib.util
import logging
import re
from collections.abc import Iterable
from decimal import Decimal
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Samples, not_installed
from rlfactory.reward.ops.answers import AnswerReward, check_answers
from rlfactory.utils.types import Positive
from rlfactory.utils.workers import LineWorker, WorkerDied

log = logging.getLogger(__name__)

PROGRAM = Path(__file__).parent / "ops" / "math_worker.py"
READ_FIRST = 20
"""Answers that are read before a run; the others are checked to be texts or numbers."""
EXPONENT = re.compile(r"[-+]?\d+(\.\d+)?[eE][-+]?\d{1,3}")
"""A number as Python writes small and large ones."""
_GIB = 2**30


class MathAnswer(AnswerReward):
    """`math`: 1 where the last answer in the completion equals that of its prompt, otherwise 0.

    Each comparison is made in a process of its own: one that takes too long or too much memory
    kills it, and scores NaN, as does one that raises an exception. RewardError without the package
    math-verify (the extra `math`), or where prompts lack answers that can be read.
    """

    metadata_options = ("answer_column",)
    main = "math"

    def __init__(
        self, *, answer_column: str = "answer", timeout: Positive = 5.0, memory: Positive = 2.0
    ) -> None:
        """
        Args:
            answer_column: Key of each prompt's answer, a number or a text in LaTeX or plain
                notation.
            timeout: > 0: seconds for one comparison, after which it has no score.
            memory: > 0: GiB for one comparison, above which it has no score.
        """
        if importlib.util.find_spec("math_verify") is None:
            raise not_installed("math", "math")
        super().__init__(answer_column)
        self.timeout = timeout
        self._worker = LineWorker(PROGRAM, int(memory * _GIB))

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """Each prompt has an answer; the first `READ_FIRST` can be read."""
        prompts = [*prompts]
        super().check_prompts(prompts)
        column = str(self.column)
        first: dict[object, Prompt] = {}
        for prompt in prompts:
            first.setdefault(prompt.metadata[column], prompt)
        check_answers(islice(first.values(), READ_FIRST), column, self._reading_fault)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, 0 or 1."""
        return {"math": self.graded(samples, self._grade)}

    def _grade(self, text: str, answer: object) -> float:
        try:
            reply = self._worker.ask([_as_latex(answer), text, self.timeout])
        except WorkerDied as error:
            log.error(
                "reward math took longer than %g s or too much memory (%s) for %.80r",
                self.timeout,
                error,
                text,
            )
            return torch.nan
        if "error" in reply:
            log.error("reward math: %s for %.80r", reply["error"], text)
            return torch.nan
        return float(reply["equal"])

    def fault(self, answer: object) -> str | None:
        """Whether it is neither a number nor a text with anything in it."""
        if isinstance(answer, str | int | float) and str(answer).strip():
            return None
        return f"is {answer!r:.40}; it must be a number, or a text that is not empty"

    def _reading_fault(self, answer: object) -> str | None:
        try:
            reply = self._worker.ask([_as_latex(answer), "", self.timeout])
        except WorkerDied:
            return f"is {answer!r:.40}, which takes longer than {self.timeout:g} s to read"
        return f"is {answer!r:.40}: {reply['error']}" if "error" in reply else None


def _as_latex(answer: object) -> str:
    """An answer as text, of a number all digits: `1e-05` would be read as 1 times e less 5."""
    text = str(answer).strip()
    return f"{Decimal(text):f}" if EXPONENT.fullmatch(text) else text
