"""Truncated sampling and stop texts, in every algorithm of texts."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from cases import cases, check


@pytest.mark.slow
@pytest.mark.parametrize("path", cases("decoding"))
def test_right_or_one_line(
    path: Path, tmp_path: Path, here: Callable[..., CompletedProcess[str]]
) -> None:
    check(path, tmp_path, here)
