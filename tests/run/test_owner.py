"""One run, one owner."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlfactory.run import owner
from rlfactory.run.folder import RunFolderError
from rlfactory.run.owner import OWNER_FILE, claim, owned, require_free, started

SOURCE = Path(__file__).parents[2] / "src"
RACE = """
import sys, time
from pathlib import Path
from rlfactory.run.folder import RunFolderError
from rlfactory.run.owner import OWNER_FILE, owned
folders = [Path(word) for word in sys.argv[2:]]
print("ready", flush=True)
while time.time() < float(sys.argv[1]): pass
for folder in folders:
    try:
        with owned(folder):
            print(folder.name, flush=True)
            while not (folder / "end").exists(): time.sleep(0.01)
    except RunFolderError as error:
        assert "is in use by process" in str(error) or "just now" in str(error), error
        (folder / f"refused_{time.time_ns()}").touch()
"""


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def leave(folder: Path, **changes: object) -> None:
    (folder / OWNER_FILE).write_text(json.dumps(claim(os.getpid()) | changes))


def test_it_is_there_while_it_lasts(tmp_path: Path) -> None:
    with owned(tmp_path) as said:
        assert said == ""
        assert json.loads((tmp_path / OWNER_FILE).read_text()) == claim(os.getpid())
    assert not (tmp_path / OWNER_FILE).exists()


def test_after_an_error_it_is_given_back(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), owned(tmp_path):
        raise ZeroDivisionError
    assert not (tmp_path / OWNER_FILE).exists()


@pytest.mark.parametrize("take_over", [False, True])
def test_a_living_process_is_named(
    tmp_path: Path, other: subprocess.Popen[bytes], take_over: bool
) -> None:
    leave(tmp_path, pid=other.pid, started=started(other.pid))
    said = f"in use by process {other.pid} on .*; wait for it, or stop it with kill {other.pid}"
    with pytest.raises(RunFolderError, match=said), owned(tmp_path, take_over):
        pass
    with pytest.raises(RunFolderError, match=said):
        require_free(tmp_path, take_over)
    assert json.loads((tmp_path / OWNER_FILE).read_text())["pid"] == other.pid


@pytest.mark.parametrize("how", ["gone", "unwaited", "another start", "another boot"])
def test_a_stale_one_is_taken_over(
    tmp_path: Path, other: subprocess.Popen[bytes], how: str
) -> None:
    begun = started(other.pid)
    leave(
        tmp_path,
        pid=other.pid,
        started="1" if how == "another start" else begun,
        boot="b" if how == "another boot" else claim(1)["boot"],
    )
    if how in ("gone", "unwaited"):
        other.kill()
        while started(other.pid) is not None:
            time.sleep(0.01)
        if how == "gone":
            other.wait()
    require_free(tmp_path)
    with owned(tmp_path) as said:
        assert said.startswith(f"taken over from process {other.pid} on ")
        assert said.endswith("which is no more")
        assert json.loads((tmp_path / OWNER_FILE).read_text()) == claim(os.getpid())
    assert not (tmp_path / OWNER_FILE).exists()


@pytest.mark.parametrize("changes", [{"host": "elsewhere"}, {"space": "pid:[1]"}, {"boot2": 1}])
def test_where_nothing_can_be_known_it_is_refused_with_what_to_type(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    leave(tmp_path, **changes)
    with pytest.raises(RunFolderError, match="if it does not, add --take-over"), owned(tmp_path):
        pass
    with owned(tmp_path, take_over=True) as said:
        assert said.endswith("as was asked")


@pytest.mark.parametrize("text", ["", "{", "[]", "17"])
def test_a_torn_one_is_like_one_from_elsewhere(tmp_path: Path, text: str) -> None:
    (tmp_path / OWNER_FILE).write_text(text)
    with pytest.raises(RunFolderError, match="process . on an unknown machine"):
        require_free(tmp_path)
    with owned(tmp_path, take_over=True):
        pass


def test_what_was_taken_away_is_not_given_back(tmp_path: Path) -> None:
    with owned(tmp_path):
        leave(tmp_path, host="elsewhere")
    assert (tmp_path / OWNER_FILE).exists()


def test_a_folder_that_vanished_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with owned(tmp_path / "run"):
        for path in (tmp_path / "run").iterdir():
            path.unlink()
        (tmp_path / "run").rmdir()


def test_without_proc_ps_is_asked(
    monkeypatch: pytest.MonkeyPatch, other: subprocess.Popen[bytes]
) -> None:
    if not Path("/bin/ps").exists():
        pytest.skip("there is no ps")
    assert owner._asked(other.pid)
    assert owner._asked(2**22) is None


@pytest.mark.parametrize("stale", [False, True])
def test_of_processes_that_begin_at_one_instant_exactly_one_wins(
    tmp_path: Path, stale: bool
) -> None:
    folders = [tmp_path / f"{i}" for i in range(20)]
    for folder in folders:
        folder.mkdir()
        if stale:
            leave(folder, started="1")
    count, instant = 4, time.time() + 3
    words = [sys.executable, "-c", RACE, str(instant), *map(str, folders)]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    racers = [
        subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    for folder in folders:
        end = time.time() + 60
        while len([*folder.glob("refused_*")]) < count - 1:
            assert time.time() < end, [*folder.iterdir()]
            time.sleep(0.01)
        (folder / "end").touch()
    said = [racer.communicate(timeout=60)[0].split() for racer in racers]
    assert all(racer.returncode == 0 for racer in racers)
    won = sorted(name for words in said for name in words if name != "ready")
    assert won == sorted(folder.name for folder in folders)
