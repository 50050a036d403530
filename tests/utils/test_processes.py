import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlfactory.utils import processes
from rlfactory.utils.processes import rare_collection, signal_handlers, start_process

SOURCE = Path(__file__).parents[2] / "src"
PARENT = """
import os, subprocess, sys
sys.path.insert(0, {source!r})
from rlfactory.utils import processes
{before}
with open(os.devnull, "wb") as output:
    child = processes.start_process([sys.executable, "-S", "-c", {child!r}], {{}}, output, [])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture(autouse=True)
def _python_listens() -> Iterator[None]:
    former = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.parametrize(("imported", "is_frozen"), [("gc", True), ("triton", False)])
def test_garbage_is_looked_for_rarely_and_not_at_the_end(
    imported: str, is_frozen: bool, tmp_path: Path
) -> None:
    before = gc.get_threshold()
    with rare_collection():
        assert gc.get_threshold()[0] == 500_000
    assert gc.get_threshold() == before
    code = (
        f"import atexit, gc, {imported}\n"
        "from rlfactory.utils.processes import rare_collection\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 1000))\n"  # the last to be called
        "with rare_collection(): pass\n"
        "assert gc.get_freeze_count() == 0\n"
    )
    (tmp_path / "triton.py").touch()  # its bindings would report what stays
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{SOURCE}"}
    words = [sys.executable, "-c", code]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout == f"{is_frozen}\n"


def test_handlers_are_for_the_block() -> None:
    heard: list[int] = []
    former = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)]
    with signal_handlers(lambda number, _: heard.append(number), (signal.SIGUSR1, signal.SIGUSR2)):
        os.kill(os.getpid(), signal.SIGUSR2)
    assert heard == [signal.SIGUSR2]
    assert [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)] == former


def test_handlers_are_restored_after_an_error() -> None:
    with pytest.raises(KeyError), signal_handlers(signal.SIG_IGN, [signal.SIGUSR1]):
        raise KeyError
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with signal_handlers(signal.default_int_handler, [signal.SIGINT]):
        os.kill(os.getpid(), signal.SIGINT)


def test_other_threads_leave_handlers_alone() -> None:
    def work() -> None:
        with signal_handlers(signal.SIG_IGN, [signal.SIGINT]):
            found.append(signal.getsignal(signal.SIGINT))

    found: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_a_child_has_a_session_of_its_own(tmp_path: Path) -> None:
    program = "import os; print(os.getsid(0), os.getpid(), os.environ['WORD'])"
    with (tmp_path / "out").open("wb") as output:
        child = start_process([sys.executable, "-S", "-c", program], {"WORD": "x"}, output, [])
    assert child.wait() == 0
    assert (tmp_path / "out").read_text().split() == [str(child.pid), str(child.pid), "x"]


@pytest.mark.parametrize("polls", [False, True])
def test_a_child_ends_with_its_parent(tmp_path: Path, polls: bool) -> None:
    """By SIGTERM, also where the parent is killed; by the system's own means, or by polling."""
    done = tmp_path / "done"
    source = str(SOURCE)
    child = f"""
import os, pathlib, signal, sys, time
sys.path.insert(0, {source!r})
signal.signal(15, lambda *_: (pathlib.Path({str(done)!r}).touch(), os._exit(0)))
if {polls}:
    from rlfactory.utils import processes
    processes._libc, processes._POLL_SECONDS = None, 0.05
    processes.terminate_with_parent(os.getppid())
pathlib.Path({str(tmp_path / "ready")!r}).touch()
time.sleep(60)
"""
    before = "processes._libc = None" if polls else ""
    program = PARENT.format(source=source, before=before, child=child)
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    wait_for(tmp_path / "ready")
    parent.kill()
    parent.wait()
    wait_for(done)


def test_a_child_whose_parent_has_ended_already_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(processes, "_libc", None)
    monkeypatch.setattr(processes.threading.Thread, "start", lambda _: None)
    monkeypatch.setattr(processes.os, "_exit", ended.append)
    processes.terminate_with_parent(os.getppid())
    assert ended == []
    processes.terminate_with_parent(os.getppid() + 1)
    assert ended == [143]


def wait_for(file: Path) -> None:
    end = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < end
        time.sleep(0.02)
