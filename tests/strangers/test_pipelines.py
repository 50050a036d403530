"""Image pipelines of strangers: right, or one line and exit 2."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from cases import cases, check


@pytest.mark.parametrize("path", cases("pipelines"))
def test_right_or_one_line(
    path: Path, tmp_path: Path, here: Callable[..., CompletedProcess[str]]
) -> None:
    check(path, tmp_path, here)
