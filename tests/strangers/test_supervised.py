"""Rows of strangers for supervised learning and preferences: learned, or refused in one line."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from cases import cases, check


@pytest.mark.parametrize("path", cases("supervised"))
def test_right_or_one_line(
    path: Path, tmp_path: Path, here: Callable[..., CompletedProcess[str]]
) -> None:
    check(path, tmp_path, here)
