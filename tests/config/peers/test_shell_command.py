"""Options of shell commands of other libraries."""

from typing import Any

import pytest

from rlfactory.config.peers.shell_command import of_shell


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("1e-4", 1e-4),
        ("1e+5", 1e5),
        ("3", 3),
        ("true", True),
        ("1e", "1e"),
        ("[1e-4,2]", [1e-4, 2]),
    ],
)
def test_numbers_are_read_in_each_form(typed: str, value: Any) -> None:
    found = of_shell(f"trl grpo --learning_rate {typed}").values["learning_rate"]
    assert found == value
    assert type(found) is type(value)
