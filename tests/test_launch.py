"""Processes that are started and watched; what they do is played by small programs."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlfactory import launch as launch_module
from rlfactory.launch import HOST, Sitting, launch, require_possible, words_of
from rlfactory.problems import PlanError
from rlfactory.ranks import Place

NODE = {
    "_target_": "rlfactory.hardware.distributed.Distributed",
    "launcher": "auto",
    "port": None,
    "processes": 2,
    "timeout": 0.5,
    "restarts": 0,
}


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(launch_module, "GRACE", 0.5)


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Place]]:
    """Has each rank run a program in the place of training; the places that were given."""
    begun: list[Place] = []

    def play(*programs: str) -> list[Place]:
        def begin(team: Any, here: Place) -> subprocess.Popen[bytes]:
            begun.append(here)
            again = {"AGAIN": str((len(begun) - 1) // len(programs))}
            program = (
                f"import os, signal, sys, time\nn = int(os.environ['AGAIN'])\n{programs[here.rank]}"
            )
            words = [sys.executable, "-S", "-c", program]
            return subprocess.Popen(words, env=os.environ | again, start_new_session=True)

        monkeypatch.setattr(launch_module._Team, "_begin", begin)
        return begun

    return play


def test_words_say_what_a_sitting_is() -> None:
    for sitting in (Sitting(Path("a b")), Sitting(Path("run"), 7, True, True)):
        assert words_of(sitting.words()) == sitting


def test_all_have_a_place_and_the_first_ones_code_counts(plays: Callable[..., list[Place]]) -> None:
    begun = plays("", "")
    assert launch(Sitting(Path("run")), NODE) == 0
    assert [(here.rank, here.world, here.local) for here in begun] == [(0, 2, 0), (1, 2, 1)]
    assert begun[0].port == begun[1].port
    assert launch(Sitting(Path("run")), {**NODE, "port": 4711}) == 0
    assert begun[-1].port == 4711


def test_a_lost_process_ends_the_others_in_time(
    plays: Callable[..., list[Place]], capfd: pytest.CaptureFixture[str]
) -> None:
    plays("time.sleep(60)", "os.kill(os.getpid(), signal.SIGKILL)")
    begun = time.monotonic()
    assert launch(Sitting(Path("run")), NODE) == 1
    assert time.monotonic() - begun < 10
    assert "process 1 was ended by SIGKILL" in capfd.readouterr().err


def test_a_failure_is_one_of_all(plays: Callable[..., list[Place]]) -> None:
    plays("sys.exit(0)", "sys.exit(1)")
    assert launch(Sitting(Path("run")), NODE) == 1


def test_what_was_lost_is_begun_again_where_restarts_are_left(
    plays: Callable[..., list[Place]], capfd: pytest.CaptureFixture[str]
) -> None:
    begun = plays("", "sys.exit(1 if n < 2 else 0)")
    assert launch(Sitting(Path("run")), {**NODE, "restarts": 1}) == 1
    assert len(begun) == 4
    begun.clear()
    assert launch(Sitting(Path("run")), {**NODE, "restarts": 5}) == 0
    assert len(begun) == 6
    assert "starting all processes again" in capfd.readouterr().err


def test_a_signal_is_sent_on_and_is_no_failure(plays: Callable[..., list[Place]]) -> None:
    waits = "signal.signal(15, lambda *_: sys.exit(143))\ntime.sleep(60)"
    begun = plays(waits, waits)

    def tell() -> None:
        time.sleep(1.0)  # until both listen
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=tell).start()
    assert launch(Sitting(Path("run")), {**NODE, "restarts": 3}) == 143
    assert len(begun) == 2, "it was asked for"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(PlanError, match=f"hardware.port: is {port}, which is in use"):
            require_possible({"hardware": {**NODE, "port": port}})
    require_possible({"hardware": {**NODE, "port": None}})


def test_slurm_is_refused_outside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    with pytest.raises(PlanError, match="no task of srun's"):
        require_possible({"hardware": {**NODE, "launcher": "slurm"}})
