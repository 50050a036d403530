"""Being asked to stop."""

import os
import signal
import threading

import pytest

from rlfactory.run.signals import Stop


@pytest.fixture(autouse=True)
def _python_listens() -> None:
    # whoever starts tests in the background has them ignore what Ctrl-C sends
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_first_is_a_wish_and_the_second_an_order(capfd: pytest.CaptureFixture[str]) -> None:
    with Stop() as stop:
        assert not stop.asked
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
        assert "stopping after this iteration" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
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
