"""Signals that ask a run to stop, and the progress at whose steps it can."""

import os
import signal
import threading

import pytest

from rlfactory.train.process import signals
from rlfactory.train.process.signals import Interruption, Stop, StopAwareProgress


@pytest.fixture(autouse=True)
def _python_listens() -> None:
    # whoever starts tests in the background has them ignore what Ctrl-C sends
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [
        (signal.SIGINT, "interrupted", 130),
        (signal.SIGTERM, "preempted", 143),
        (signal.SIGUSR1, "preempted", 138),
        (signal.SIGHUP, "preempted", 129),
        (signal.SIGUSR2, "preempted", 140),
    ],
)
def test_the_first_is_a_wish_and_the_second_an_order(
    number: int, status: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    former = signal.getsignal(number)
    with Stop() as stop, stop.wished():
        stop.leave()
        send(number)
        assert stop.asked == number
        assert "stopping at the next step" in capfd.readouterr().err
        with pytest.raises(Interruption):
            stop.leave()
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    assert (stop.status, stop.code) == (status, code), "those of the first"
    assert signal.getsignal(number) is former


def test_a_wish_is_noted_where_nobody_reads_the_answer() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    former = os.dup(2)
    os.dup2(writing, 2)
    try:
        with Stop() as stop, stop.wished():
            send(signal.SIGTERM)
            assert stop.asked == signal.SIGTERM
    finally:
        os.dup2(former, 2)
        for handle in (former, writing):
            os.close(handle)


def test_where_there_is_nothing_to_lose_the_first_is_an_order() -> None:
    with Stop() as stop:
        with stop.wished():
            pass
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGTERM)
    assert stop.code == 143


def test_what_a_launcher_says_once_more_is_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    with Stop() as stop, stop.wished():
        send(signal.SIGTERM)
        now[0] += signals.ECHO / 2
        send(signal.SIGTERM)
        now[0] += signals.ECHO
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGTERM)


def test_two_fast_ones_from_the_keyboard_are_two() -> None:
    with Stop() as stop, stop.wished():
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Stop() as stop:
        send(signal.SIGINT)
        assert not stop.asked


def test_another_thread_listens_to_nothing() -> None:
    def work() -> None:
        with Stop():
            found.append(signal.getsignal(signal.SIGINT))

    found: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_a_signal_during_the_agreement_waits_for_the_next_one() -> None:
    """Else a rank would stop alone, or the signal would be forgotten."""

    def interrupted(value: float) -> float:
        send(signal.SIGTERM)
        return value

    with Stop() as stop, stop.wished():
        stop.agree(interrupted)
        assert (stop.requested, stop.asked) == (signal.SIGTERM, 0)
        stop.leave()
        stop.agree(lambda value: value)
        assert stop.asked == signal.SIGTERM
        with pytest.raises(Interruption):
            stop.leave()


def test_a_rank_obeys_the_signal_to_another() -> None:
    with Stop() as stop, stop.wished():
        stop.agree(lambda _: float(signal.SIGUSR1))
    assert (stop.requested, stop.asked) == (0, signal.SIGUSR1)
    assert (stop.status, stop.code) == ("preempted", 138)


def test_after_an_error_a_first_signal_interrupts_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """torchrun sends one to the ranks that are left, while they say what happened."""
    with Stop() as stop:
        with pytest.raises(KeyError), stop.wished():
            raise KeyError
        send(signal.SIGTERM)
        assert stop.asked == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    assert capfd.readouterr().err == ""


class Counter:
    """Records the progress that it is told."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def phase(self, name: str, *, total: int) -> None:
        self.calls.append((name, total))

    def advance(self, count: int) -> None:
        self.calls.append(count)


def test_progress_is_passed_on_and_then_there_is_a_way_out() -> None:
    counter, asked = Counter(), list[int]()
    progress = StopAwareProgress(counter, lambda: asked.append(len(counter.calls)))
    progress.phase("sample", total=3)
    progress.advance(2)
    progress.advance(0)
    assert counter.calls == [("sample", 3), 2], "what is too small is not shown"
    assert asked == [2, 2], "after each step, not before a phase"


def test_the_way_out_is_taken() -> None:
    def leave() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        StopAwareProgress(Counter(), leave).advance(0)
