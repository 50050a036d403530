"""Python configurations are read and not run."""

from pathlib import Path

import pytest

from rlfactory.config.peers.python_config import read

SOURCE = """
import os
raise SystemExit("imported")

def shared(): 
    config = ConfigDict({"a": 1})
    return config

def made():
    '''A docstring.'''
    n = 4
    config = shared()
    config.inner = inner = ml_collections.ConfigDict()
    inner.half = -n / 2
    inner.name = f"run_{n}"
    inner.items = (1, [2, n % 3])
    inner.path = os.path.join(os.getcwd(), "data", "x")
    inner.some = max(1, 2) if n > 3 else 0
    if n == 4:
        inner.four = not False
    else:
        inner.four = None
    assert n
    inner.unknown = os.system("touch here")
    for i in range(3):
        inner.looped = i
    return config
"""


def test_assignments_are_evaluated_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.py").write_text(SOURCE)
    found = read(tmp_path / "c.py", "made")
    assert found.values["a"] == 1
    assert found.values["inner"] == {
        "half": -2.0,
        "name": "run_4",
        "items": [1, [2, 1]],
        "path": "data/x",
        "some": 2,
        "four": True,
    }
    assert found.variables["n"] == 4
    assert [line.split("\n")[0] for line in found.unread] == [
        "inner.unknown = os.system('touch here')",
        "for i in range(3):",
    ]
    assert not (tmp_path / "here").exists()


def test_functions_that_there_are_not(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text(SOURCE)
    with pytest.raises(KeyError):
        read(tmp_path / "c.py", "nothing")
