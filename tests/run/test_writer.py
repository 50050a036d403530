"""Writing in the background: in order, and no error is lost."""

import threading
import time

import pytest

from rlfactory.run.writer import Writer


def broken() -> None:
    raise OSError("disk")


def test_a_job_is_done_while_others_go_on() -> None:
    gate, done = threading.Event(), list[int]()
    writer = Writer()
    writer.do(lambda: (gate.wait(10), done.append(1))[1])
    assert done == []
    writer.check()
    gate.set()
    writer.wait()
    assert done == [1]
    writer.close()


def test_a_job_waits_for_the_one_before() -> None:
    done = list[int]()
    writer = Writer()
    writer.do(lambda: (time.sleep(0.05), done.append(1))[1])
    writer.do(lambda: done.append(2))
    writer.close()
    assert done == [1, 2]


@pytest.mark.parametrize("call", ["do", "wait", "close"])
def test_an_error_is_raised_by_the_next_call_and_once(call: str) -> None:
    writer = Writer()
    writer.do(broken)
    with pytest.raises(OSError, match="disk"):
        getattr(writer, call)(*([broken] if call == "do" else []))
    writer.wait()
    writer.close()


def test_a_check_finds_an_error_once_it_is_there() -> None:
    writer, ended = Writer(), threading.Event()
    writer.do(lambda: (ended.set(), broken())[1])
    ended.wait(10)
    time.sleep(0.05)
    with pytest.raises(OSError, match="disk"):
        writer.check()
    writer.close()


def test_without_a_background_everything_happens_at_once() -> None:
    writer, done = Writer(background=False), list[int]()
    writer.do(lambda: done.append(1))
    assert done == [1]
    with pytest.raises(OSError, match="disk"):
        writer.do(broken)
    writer.close()
