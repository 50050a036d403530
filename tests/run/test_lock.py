"""The lock of a run folder."""

import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from rlfactory.run.folder import RunFolderError
from rlfactory.run.lock import LOCK_FILE, OWNER_FILE, owned, require_free, this_process

SOURCE = Path(__file__).parents[2] / "src"
RACE = """
import sys, time
from pathlib import Path
from rlfactory.run import lock
from rlfactory.run.folder import RunFolderError
from rlfactory.run.lock import owned
lock.PROBE_SECONDS = 0.05  # nobody probes here, and the winner stays until all others are refused
folders = [Path(word) for word in sys.argv[1:]]
print("ready", flush=True)
instant = float(sys.stdin.readline())
while time.time() < instant: pass
for folder in folders:
    try:
        with owned(folder):
            print(folder.name, flush=True)
            while not (folder / "end").exists(): time.sleep(0.01)
    except RunFolderError as error:
        assert "is in use by process" in str(error) or "just now" in str(error), error
        (folder / f"refused_{time.time_ns()}").touch()
"""


HOLD = """
import sys, time
from pathlib import Path
from rlfactory.run.lock import owned
with owned(Path(sys.argv[1])):
    print("owned", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that owns `tmp_path`."""
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "owned\n"
    yield process
    process.kill()
    process.wait()


def leave(folder: Path, **changes: object) -> None:
    """The files that an owner leaves which was killed."""
    (folder / LOCK_FILE).touch()
    (folder / OWNER_FILE).write_text(json.dumps({**this_process(), "since": "then"} | changes))


def test_it_is_there_while_it_lasts(tmp_path: Path) -> None:
    with owned(tmp_path) as notice:
        assert notice == ""
        owner = json.loads((tmp_path / OWNER_FILE).read_text())
        assert owner.keys() == {"pid", "host", "since"}
        assert (owner["pid"], owner["host"]) == (os.getpid(), socket.gethostname())
        with pytest.raises(RunFolderError, match="in use by"), owned(tmp_path):
            pass
    assert not (tmp_path / OWNER_FILE).exists()
    with owned(tmp_path) as notice:
        assert notice == ""


def test_after_an_error_it_is_released(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), owned(tmp_path):
        raise ZeroDivisionError
    assert not (tmp_path / OWNER_FILE).exists()
    require_free(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("take_over", [False, True])
def test_a_living_process_is_named(
    tmp_path: Path, other: subprocess.Popen[str], take_over: bool
) -> None:
    said = f"in use by process {other.pid} on .* since 20.*; wait for it, or stop it with kill"
    with pytest.raises(RunFolderError, match=f"{said} {other.pid}"), owned(tmp_path, take_over):
        pass
    with pytest.raises(RunFolderError, match=said):
        require_free(tmp_path, take_over)
    assert json.loads((tmp_path / OWNER_FILE).read_text())["pid"] == other.pid


@pytest.mark.parametrize("how", ["waited for", "unwaited", "another boot", "earlier version"])
def test_a_stale_one_is_taken_over(tmp_path: Path, other: subprocess.Popen[str], how: str) -> None:
    other.kill()
    if how == "waited for":
        other.wait()
    end = time.monotonic() + 20
    while True:  # until the kernel has released the lock
        try:
            require_free(tmp_path)
            break
        except RunFolderError:
            assert time.monotonic() < end
    if how == "another boot":  # no process has had the lock since, though its number is in use
        leave(tmp_path, pid=os.getppid())
    if how == "earlier version":
        leave(tmp_path, boot="b", space="pid:[1]", started="1")
    left = json.loads((tmp_path / OWNER_FILE).read_text())
    with owned(tmp_path) as notice:
        assert notice.startswith(f"taken over from process {left['pid']} on ")
        assert notice.endswith("which ended")
        assert json.loads((tmp_path / OWNER_FILE).read_text())["pid"] == os.getpid()
    assert not (tmp_path / OWNER_FILE).exists()


def test_an_owner_on_another_host_is_refused_with_what_to_type(tmp_path: Path) -> None:
    leave(tmp_path, host="elsewhere")
    said = "process .* on elsewhere since then, .* if it does not, add --take-over"
    with pytest.raises(RunFolderError, match=said), owned(tmp_path):
        pass
    with owned(tmp_path, take_over=True) as notice:
        assert notice.endswith("because of --take-over")


@pytest.mark.slow
def test_a_kernel_lock_that_a_crashed_host_left_on_a_shared_disk_can_be_taken_over(
    tmp_path: Path,
) -> None:
    leave(tmp_path, host="elsewhere")
    with FileLock(tmp_path / LOCK_FILE):  # held by nobody that runs, as far as users know
        with pytest.raises(RunFolderError, match="add --take-over"):
            require_free(tmp_path)
        with owned(tmp_path, take_over=True) as notice:
            assert notice.endswith("because of --take-over")
    assert not (tmp_path / OWNER_FILE).exists()


def test_a_disk_without_locks_has_its_owner_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with owned(tmp_path):
        with pytest.raises(RunFolderError, match="add --take-over"), owned(tmp_path):
            pass
        with pytest.raises(RunFolderError, match="add --take-over"):
            require_free(tmp_path)
    with owned(tmp_path) as notice:
        assert notice == ""


def test_a_lock_without_an_owner_file_is_in_use_as_well(tmp_path: Path) -> None:
    with (
        FileLock(tmp_path / LOCK_FILE),
        pytest.raises(RunFolderError, match="started or ended just now"),
    ):
        require_free(tmp_path, take_over=True)
    require_free(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "17"])
def test_a_torn_one_is_like_one_from_elsewhere(tmp_path: Path, text: str) -> None:
    (tmp_path / OWNER_FILE).write_text(text)
    with pytest.raises(RunFolderError, match="process . on an unknown host"):
        require_free(tmp_path)
    assert not (tmp_path / LOCK_FILE).exists(), "asking makes no file"
    (tmp_path / LOCK_FILE).touch()
    with pytest.raises(RunFolderError, match="process . on an unknown host"):
        require_free(tmp_path)
    with owned(tmp_path, take_over=True):
        (tmp_path / OWNER_FILE).write_text(text)
        with pytest.raises(RunFolderError, match="process . on .*; wait for it"):
            require_free(tmp_path, take_over=True)


def test_an_owner_that_made_no_lock_may_be_alive(tmp_path: Path) -> None:
    leave(tmp_path)
    (tmp_path / LOCK_FILE).unlink()
    for _ in range(2):  # asking has made no lock that would look like a released one
        with pytest.raises(RunFolderError, match="add --take-over"):
            require_free(tmp_path)
    with owned(tmp_path, take_over=True) as notice:
        assert notice.endswith("because of --take-over")


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


@pytest.mark.slow
@pytest.mark.parametrize("stale", [False, True])
def test_of_processes_that_begin_at_one_instant_exactly_one_wins(
    tmp_path: Path, stale: bool
) -> None:
    folders = [tmp_path / f"{i}" for i in range(20)]
    for folder in folders:
        folder.mkdir()
        if stale:
            leave(folder, pid=1)
    count = 4
    words = [sys.executable, "-c", RACE, *map(str, folders)]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    racers = [subprocess.Popen(words, env=environment, **pipes, text=True) for _ in range(count)]
    assert [next(iter(racer.stdout or ())) for racer in racers] == ["ready\n"] * count
    instant = time.time() + 0.2
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(f"{instant}\n")
        racer.stdin.flush()
    for folder in folders:
        end = time.time() + 60
        while len([*folder.glob("refused_*")]) < count - 1:
            assert time.time() < end, [*folder.iterdir()]
            time.sleep(0.01)
        (folder / "end").touch()
    said = [racer.communicate(timeout=60)[0].split() for racer in racers]
    assert all(racer.returncode == 0 for racer in racers)
    won = sorted(name for words in said for name in words)
    assert won == sorted(folder.name for folder in folders)


@pytest.mark.parametrize("name", [OWNER_FILE, LOCK_FILE])
def test_a_folder_in_the_place_of_the_lock_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    if name == OWNER_FILE:
        with pytest.raises(RunFolderError, match="OWNER: is no file; remove it"), owned(tmp_path):
            pass
    else:
        with owned(tmp_path):  # OWNER alone decides, as on a disk without locks
            assert (tmp_path / OWNER_FILE).is_file()
