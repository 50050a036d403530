"""Being asked to stop."""

import os
import signal
import threading

import pytest

from rlfactory.run import signals
from rlfactory.run.signals import Interruption, Stop


@pytest.fixture(autouse=True)
def _python_listens() -> None:
    # whoever starts tests in the background has them ignore what Ctrl-C sends
    signal.signal(signal.SIGINT, signal.default_int_handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [
        (signal.SIGINT, "interrupted", 130),
        (signal.SIGTERM, "preempted", 143),
        (signal.SIGUSR1, "preempted", 138),
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
