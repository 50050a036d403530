"""What is published names no folder of this machine."""

import json
from pathlib import Path

import pytest

from rlfactory.tools.export.base_model import (
    command_without_folders,
    forget_locations,
    without_folders,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/data/my models/sd3", "sd3"),
        ("~/prompts.txt", "prompts.txt"),
        ("../x/rewards.py:redness", "rewards.py:redness"),
        ("owner/name", "owner/name"),
        ("zoo:tiny_sd3", "zoo:tiny_sd3"),
        ("pkg://mine/conf", "pkg://mine/conf"),
        ("http://host:80/score", "http://host:80/score"),
        ("[a,/data/b.txt]", "[a,b.txt]"),
        ("1/2 and 3 / 4", "1/2 and 3 / 4"),
    ],
)
def test_paths_become_names(text: str, shown: str) -> None:
    assert without_folders(text) == shown
    assert without_folders({"a": [text, 1, None]}) == {"a": [shown, 1, None]}


def test_a_command_stays_one() -> None:
    typed = "rlfactory model.path=/data/sd3 'run_dir='\"'\"'/tmp/a b/a run'\"'\"'' seed=0 -cd /conf"
    shown = command_without_folders(typed)
    assert "/data" not in shown
    assert "/tmp" not in shown
    assert "a b" not in shown
    assert shown.startswith("rlfactory model.path=sd3 ")
    assert shown.endswith(" seed=0 -cd conf")
    assert command_without_folders("a 'b /c/d") == "a 'b d"


def test_where_something_was_loaded_from_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_text('{"_name_or_path": "/data/x", "é": 1}')
    (tmp_path / "list.json").write_text("[1]")
    forget_locations(tmp_path)
    assert json.loads((tmp_path / "a" / "config.json").read_text()) == {"é": 1}
    assert (tmp_path / "list.json").read_text() == "[1]"
