"""The command as the tests call it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs `rlfactory WORDS` in an empty folder, in a process of its own.

    Further folders on the path come as `path=[...]`.
    """

    def call(*words: str, path: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
        search = os.pathsep.join(map(str, [SOURCE, *path]))
        return subprocess.run(
            [sys.executable, "-m", "rlfactory.cli", *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": search, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs the command in this process, sees it exit with 2, and returns what it said."""
    from rlfactory import cli

    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["rlfactory", *words])
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        shown = capsys.readouterr()
        assert stopped.value.code == 2, shown
        assert shown.out == ""
        assert "Traceback" not in shown.err
        assert sorted(tmp_path.rglob("*")) == before, "a refused command writes nothing"
        return shown.err

    return call
