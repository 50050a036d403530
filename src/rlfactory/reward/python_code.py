"""Verifier: whether a completion is a Python program that passes the tests of its prompt."""

import logging
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, Samples, require_texts
from rlfactory.reward.ops.answers import check_answers, report_missing
from rlfactory.reward.ops.run_program import Limits, NotRunError, count_passed
from rlfactory.utils.types import Positive, PositiveInt

log = logging.getLogger(__name__)

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_GIB = 2**30


class PythonCode(Reward):
    """`python`: 1 where the program passes all tests of its prompt, otherwise 0.

    The tests are the prompt's `tests_column`: Python code, such as asserts, or a list of such
    texts; each is run after the program, with its names. With `partial="tests"` the score is the
    share of tests that pass. The program is the completion; with `fenced` its last Markdown block
    of code, where it has one; with `with_prompt` the prompt and the completion.

    Each program runs in a process of its own, without network, in an empty folder, for at most
    `timeout` seconds and with at most `memory` GiB; `concurrency` run at once. A program that
    raises, exits or breaks a limit passes no test. What could not be run at all scores NaN.
    RewardError where prompts lack tests that are Python.
    """

    media = "texts"
    metadata_options = ("tests_column",)
    main = "python"
    best_score = 1.0

    def __init__(
        self,
        *,
        tests_column: str = "tests",
        fenced: bool = True,
        with_prompt: bool = False,
        partial: Literal["none", "tests"] = "none",
        timeout: Positive = 5.0,
        memory: Positive = 0.5,
        packages: bool = False,
        concurrency: PositiveInt = 4,
    ) -> None:
        self.metadata = (tests_column,)  # type: ignore[misc]
        self.column = tests_column
        self.fenced, self.with_prompt, self.partial = fenced, with_prompt, partial
        self.limits = Limits(timeout, int(memory * _GIB), packages)
        self.concurrency = concurrency

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """Each prompt has tests, which are Python."""
        prompts = [*prompts]
        super().check_prompts(prompts)
        check_answers(prompts, self.column, _fault)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        texts = require_texts(samples)
        tests = [row.get(self.column) for row in samples.metadata]
        report_missing(samples.prompts, tests, self.column)
        programs = map(self._program, samples.prompts, texts)
        with ThreadPoolExecutor(self.concurrency) as pool:
            scores = [*pool.map(self._grade, programs, tests)]
        return {"python": torch.tensor(scores, dtype=torch.float32)}

    def _program(self, prompt: str, text: str) -> str:
        blocks = _FENCE.findall(text) if self.fenced else []
        code: str = blocks[-1] if blocks else text
        return prompt + code if self.with_prompt else code

    def _grade(self, program: str, tests: object) -> float:
        if tests is None:
            return torch.nan
        parts = as_list(tests)
        try:
            passed = count_passed(program, parts, self.limits)
        except NotRunError as error:
            log.error("reward python could not run a program: %s", error)
            return torch.nan
        share = passed / len(parts)
        return share if self.partial == "tests" else float(share == 1)


def as_list(tests: object) -> Sequence[str]:
    """Tests as a list of texts; a text is one test."""
    return [*map(str, tests)] if isinstance(tests, list | tuple) else [str(tests)]


def _fault(tests: object) -> str | None:
    """What is wrong with the tests of a prompt."""
    texts = tests if isinstance(tests, list | tuple) else [tests]
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        return f"is {tests!r:.40}; it must be Python code, or a list of such texts"
    for text in texts:
        try:
            compile(str(text), "<tests>", "exec")
        except (SyntaxError, ValueError) as error:
            return f"is {text!r:.40}, which is not Python: {error}"
    return None
