"""The first thing that a newcomer reads."""

import pytest

from rlfactory.help import show_help
from rlfactory.settings import GROUPS


def test_every_group_has_a_line_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_help() == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    for group in GROUPS:
        (line,) = [words for words in lines if words[0] == group]
        assert len(line) > 2
