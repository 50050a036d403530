"""Verifier: whether a completion is a Python program that passes the tests of its prompt."""

import json
import logging
import re
import secrets
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import torch
from torch import Tensor

from rlfactory.reward.base import Samples, require_texts
from rlfactory.reward.ops.answers import AnswerReward
from rlfactory.utils.types import Positive, PositiveInt
from rlfactory.utils.workers import kill_session, start_program

log = logging.getLogger(__name__)

_FENCE = re.compile(r"```([^\n`]*)\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
LANGUAGES = ("", "python", "py", "python3", "py3")
"""What a block of Python may be said to be."""
_GIB = 2**30
RUNNER = Path(__file__).parent / "ops" / "program_runner.py"
START_SECONDS = 30.0
"""How long a process may take to start, beside the time of the program."""


class NotRunError(Exception):
    """The program could not be run, which is no fault of its own."""


class PythonCode(AnswerReward):
    """`python`: 1 where the program passes all tests of its prompt, otherwise 0.

    Each test, such as some asserts, is run after the program, with its names. Each program runs in
    a process of its own, without network, in an empty folder. One that raises, exits or breaks a
    limit passes no test. What could not be run at all scores NaN. RewardError where prompts lack
    tests that are Python.
    """

    metadata_options = ("tests_column",)
    main = "python"

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
        """
        Args:
            tests_column: Key of each prompt's tests: Python code, or a list of such texts.
            fenced: Run the last Markdown block of Python, where there is one.
            with_prompt: true: the program is the prompt and the completion.
            partial: none | tests: the share of tests that pass.
            timeout: > 0: seconds for a program with its tests.
            memory: > 0: GiB for a program.
            packages: Whether installed packages can be imported, not the standard library alone.
            concurrency: Programs that run at once.
        """
        super().__init__(tests_column)
        self.fenced, self.with_prompt, self.partial = fenced, with_prompt, partial
        self.timeout, self.memory, self.packages = timeout, int(memory * _GIB), packages
        self.concurrency = concurrency

    def fault(self, tests: object) -> str | None:
        """Whether they are not Python."""
        texts = tests if isinstance(tests, list | tuple) else [tests]
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            return f"is {tests!r:.40}; it must be Python code, or a list of such texts"
        for text in texts:
            try:
                compile(str(text), "<tests>", "exec")
            except (SyntaxError, ValueError) as error:
                return f"is {text!r:.40}, which is not Python: {error}"
        return None

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        texts = require_texts(samples)
        programs = map(self._program, samples.prompts, texts)
        with ThreadPoolExecutor(self.concurrency) as pool:
            scores = [*pool.map(self._grade, programs, self.answers(samples))]
        return {"python": torch.tensor(scores, dtype=torch.float32)}

    def _program(self, prompt: str, text: str) -> str:
        found = _FENCE.findall(text) if self.fenced else []
        blocks = [code for language, code in found if language.strip().lower() in LANGUAGES]
        code: str = blocks[-1] if blocks else text
        return prompt + code if self.with_prompt else code

    def _grade(self, program: str, tests: object) -> float:
        if tests is None:
            return torch.nan
        parts = as_list(tests)
        try:
            passed = count_passed(
                program, parts, seconds=self.timeout, memory=self.memory, packages=self.packages
            )
        except NotRunError as error:
            log.error("reward python could not run a program: %s", error)
            return torch.nan
        share = passed / len(parts)
        return share if self.partial == "tests" else float(share == 1)


def as_list(tests: object) -> Sequence[str]:
    """Tests as a list of texts; a text is one test."""
    return [*map(str, tests)] if isinstance(tests, list | tuple) else [str(tests)]


def count_passed(
    code: str, tests: Sequence[str], *, seconds: float, memory: int, packages: bool = False
) -> int:
    """The number of tests that pass after a program, which has a folder of its own while it runs.

    A program that raises, exits, or breaks a limit, of seconds or of bytes of memory, passes none.
    NotRunError where its process did not get as far as running it.
    """
    token = secrets.token_hex(16)
    request: dict[str, object] = {"code": code, "tests": [*tests], "token": token}
    request |= {"seconds": seconds, "memory": memory}
    # isolated: no variables, no user packages, nothing of the folder
    flags = ["-I", "-B"] if packages else ["-I", "-B", "-S"]
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            process = start_program(RUNNER, flags, cwd=folder, env={"OMP_NUM_THREADS": "1"})
        except OSError as error:
            raise NotRunError(str(error)) from error
        return _count(_output(process, json.dumps(request), seconds), token)


def _output(process: "subprocess.Popen[bytes]", request: str, seconds: float) -> str:
    """The output of the process until it ends or is killed, with all of its session."""
    try:
        output, _ = process.communicate(request.encode(), seconds + START_SECONDS)
    except subprocess.TimeoutExpired:
        output = kill_session(process)
    except BaseException:
        kill_session(process)
        raise
    return output.decode(errors="replace")


def _count(output: str, token: str) -> int:
    lines = output.splitlines()
    if lines[:1] != ["ready"]:
        raise NotRunError("its process did not start")
    reports = [line.split() for line in lines if line.startswith(token)]
    return int(reports[0][1]) if reports else 0
