"""Names of other libraries: what is suggested instead of them, and every suggestion is typed."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import CASES

from tests.conftest import Command

PAIRS = '{"prompt": "a", "chosen": "b", "rejected": "c"}\n'
FIRST = 9
"""Lines of a file that are not slow."""
SCORE = "def score(prompts, completions, **columns):\n    return [1.0 for _ in completions]\n"


def typed() -> Iterator[object]:
    """What is typed, and the words of the suggestion."""
    for file in sorted((CASES / "names").glob("*.txt")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
            if not line.startswith("#"):
                words, _, suggested = line.partition(" => ")
                marks = [pytest.mark.slow] if number > FIRST else []
                yield pytest.param(words, suggested, id=words, marks=marks)


def suggestions(shown: str) -> list[str]:
    """The commands that a refusal suggests."""
    lines = map(str.strip, shown.splitlines())
    return [line.removeprefix("try: ") for line in lines if line.startswith("try: ")]


@pytest.mark.parametrize(("words", "suggested"), list(typed()))
def test_what_is_suggested_works(words: str, suggested: str, tmp_path: Path, here: Command) -> None:
    (tmp_path / "pairs.jsonl").write_text(PAIRS * 3)
    (tmp_path / "r.py").write_text(SCORE)
    refused = here("check", *shlex.split(words))
    assert refused.returncode == 2, refused.stdout
    assert "Traceback" not in refused.stderr
    assert max(map(len, refused.stderr.splitlines())) < 600
    found = suggestions(refused.stderr)
    expected = "" if suggested == "-" else suggested
    whole = [line.removeprefix("rlfactory check ") for line in found]
    assert (not expected and not any("check" in line for line in found)) or expected in whole
    for command in found:
        done = here(*shlex.split(command)[1:])
        assert done.returncode == 0, done.stderr
