import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rlfactory.utils.workers import (
    LineWorker,
    WorkerDied,
    WorkerThread,
    kill_session,
    start_program,
)

PROGRAM = """
import json, sys
first = json.loads(sys.stdin.readline())
for line in sys.stdin:
    value = json.loads(line)
    if value == "die":
        sys.exit(3)
    print(json.dumps([first, value]), flush=True)
"""


def test_a_worker_that_dies_is_replaced(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    worker = LineWorker(program, "first")
    assert worker.ask({"a": "\u00e9\n"}) == ["first", {"a": "\u00e9\n"}]
    with pytest.raises(WorkerDied, match="3"):
        worker.ask("die")
    assert worker.ask(1) == ["first", 1]
    worker.close()


def test_a_thread_makes_calls_in_turn_after_it_was_prepared():
    done = []
    thread = WorkerThread("t", lambda: done.append("ready"))
    futures = [thread.submit(lambda i=i: done.append(i) or i) for i in range(3)]
    assert [future.result(10) for future in futures] == [0, 1, 2]
    assert done == ["ready", 0, 1, 2]
    with pytest.raises(SystemExit):
        thread.call(lambda: sys.exit(3), 10)
    with pytest.raises(TimeoutError, match="own"):
        thread.call(lambda: raise_("own"), 10)
    assert thread.call(lambda: 4, 10) == 4
    assert not thread.is_stuck


def raise_(text):
    raise TimeoutError(text)


def test_after_a_call_that_does_not_return_none_is_made():
    thread, release, made = WorkerThread("t"), threading.Event(), []
    for _ in range(2):
        with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
            thread.call(release.wait, 0.05)
    with pytest.raises(TimeoutError):
        thread.call(lambda: made.append(1), 0.05)
    release.set()
    assert made == []


def test_a_thread_that_was_ended_begins_no_further_call():
    thread, begun, release = WorkerThread("t"), threading.Event(), threading.Event()
    first = thread.submit(lambda: begun.set() or release.wait())
    second = thread.submit(pytest.fail)
    assert begun.wait(10)
    thread.end()
    release.set()
    assert first.result(10)
    thread._thread.join(10)
    assert not second.done()


def test_a_thread_ends_with_its_last_reference():
    """A logger has one: each training in a process, in a notebook say, left one behind."""
    worker = WorkerThread("t")
    future, thread = worker.submit(lambda: 1), worker._thread
    del worker
    thread.join(10)
    assert not thread.is_alive()
    assert future.result(10) == 1


def test_what_a_killed_program_has_started_ends_with_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\nchild.wait()\n"
    )
    process = start_program(program, [])
    child = int(process.stdout.readline())
    # its child holds the pipe: were it alive, this would wait for it
    began = time.monotonic()
    assert kill_session(process) == b""
    assert time.monotonic() - began < 30
    assert child > 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_never_returns_ends_with_a_killed_one(tmp_path):
    script = (
        "import os, sys, time\n"
        "from rlfactory.utils.workers import WorkerProcess\n"
        "def serve(pipe):\n"
        "    pipe.send(os.getpid())\n"
        "    time.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    print(WorkerProcess(serve).receive(), flush=True)\n"
        "    time.sleep(600)\n"
    )
    (file := tmp_path / "asks.py").write_text(script)
    with subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True) as asks:
        number = int(asks.stdout.readline())
        asks.kill()
    end = time.monotonic() + 20
    try:
        while is_there(number) and time.monotonic() < end:
            time.sleep(0.05)
        assert not is_there(number)
    finally:
        if is_there(number):
            os.kill(number, signal.SIGKILL)


def is_there(number):
    """Whether there is such a process, and not only its exit code."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False
