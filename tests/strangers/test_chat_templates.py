"""Chat templates of strangers: learned is what the model would write after the prompt it sees."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from cases import cases, check


@pytest.mark.parametrize("path", cases("chat_templates"))
def test_right_or_one_line(
    path: Path, tmp_path: Path, here: Callable[..., CompletedProcess[str]]
) -> None:
    check(path, tmp_path, here)
    for expected, found in (("given.txt", "prompt.txt"), ("learned.txt", "completion.txt")):
        if (tmp_path / expected).exists():
            written = (tmp_path / "run" / found).read_text()
            assert written.removesuffix("\n") == (tmp_path / expected).read_text()
