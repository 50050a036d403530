"""Ranks that torchrun starts and watches; what they do is played by small programs."""

import importlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed import run as torchrun

from rlfactory.config.problems import PlanError
from rlfactory.run.folder import RunFolder
from rlfactory.run.lock import owned
from rlfactory.train.process import launch as launch_module
from rlfactory.train.process.launch import (
    ELASTIC,
    HOST,
    TORCHRUN_GRACE,
    launch,
    require_possible,
    run_or_launch,
    torchrun_words,
)
from rlfactory.train.process.run_arguments import RunArguments
from rlfactory.utils.processes import SIGNALS

NODE = {
    "_target_": "rlfactory.hardware.distributed.Distributed",
    "launcher": "auto",
    "port": None,
    "processes": 2,
    "timeout": 0.5,
    "restarts": 0,
}
PROLOGUE = """
import os, pathlib, signal, sys, time
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
code = pathlib.Path(sys.argv[1])

def end(number):
    if rank == 0:
        code.write_text(str(number))
    sys.exit(0)

"""
Plays = Callable[..., RunArguments]


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plays:
    """Has the ranks run a program in the place of training; gives the arguments of a run."""

    def play(*lines: str) -> RunArguments:
        script = tmp_path / "rank.py"
        script.write_text(PROLOGUE + "\n".join(lines))
        run = tmp_path / "run"
        run.mkdir()
        (run / "STATUS").write_text("running\n")

        def words(arguments: RunArguments, node: Any, code_file: Path) -> list[str]:
            found = torchrun_words(arguments, node, code_file)
            return [*found[: found.index("--module")], str(script), str(code_file)]

        monkeypatch.setattr(launch_module, "torchrun_words", words)
        return RunArguments(run)

    return play


def status(arguments: RunArguments) -> str:
    return RunFolder(arguments.run).read_status()


def test_arguments_are_the_same_when_read_back() -> None:
    for arguments in (RunArguments(Path("a b")), RunArguments(Path("run"), 7, True, True, True)):
        assert RunArguments.parse([*arguments.words(), "--more", "x"]) == arguments


def test_torchrun_is_asked_for_ranks_restarts_and_signals(tmp_path: Path) -> None:
    words = torchrun_words(RunArguments(Path("run"), 3), NODE | {"restarts": 2}, tmp_path / "code")
    parsed = torchrun.parse_args(words)
    assert (parsed.nproc_per_node, parsed.max_restarts, parsed.shutdown_timeout) == ("2", 2, 6)
    assert set(parsed.signals_to_handle.split(",")) == {number.name for number in SIGNALS}
    assert parsed.standalone
    assert parsed.module
    assert parsed.training_script_args[:3] == ["run", "--until", "3"]
    words = torchrun_words(RunArguments(Path("r")), NODE | {"port": 4711}, tmp_path)
    parsed = torchrun.parse_args(words)
    assert not parsed.standalone
    assert parsed.rdzv_endpoint == f"{HOST}:4711"


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parsed = torchrun.parse_args(torchrun_words(RunArguments(Path("r")), NODE, tmp_path))
    assert "SIGINT" not in parsed.signals_to_handle


@pytest.mark.slow
def test_rank_0_gives_the_exit_code_and_nothing_is_left_changed(plays: Plays) -> None:
    arguments = plays(
        "assert os.environ['WORLD_SIZE'] == '2'",
        "assert os.environ['LOCAL_RANK'] == str(rank)",
        "assert int(os.environ['OMP_NUM_THREADS']) >= 1",
        "assert os.environ['MASTER_ADDR'] == '127.0.0.1'",
        "end(138)",
    )
    environment = dict(os.environ)
    handlers = [signal.getsignal(number) for number in SIGNALS]
    level = launch_module.logging.getLogger(ELASTIC).level
    assert launch(arguments, NODE) == 138
    assert dict(os.environ) == environment
    assert [signal.getsignal(number) for number in SIGNALS] == handlers
    assert launch_module.logging.getLogger(ELASTIC).level == level
    assert status(arguments) == "running", "a rank's to change"


@pytest.mark.slow
def test_a_port_can_be_chosen(plays: Plays) -> None:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port = listener.getsockname()[1]
    assert launch(plays("end(0)"), NODE | {"port": port}) == 0


@pytest.mark.slow
def test_a_killed_rank_ends_the_others_and_is_named(
    plays: Plays, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = plays("time.sleep(60) if rank == 0 else os.kill(os.getpid(), signal.SIGKILL)")
    begin = time.monotonic()
    assert launch(arguments, NODE) == 1
    assert time.monotonic() - begin < 20
    assert capfd.readouterr().err.strip() == "error: process 1 was ended by SIGKILL"
    assert status(arguments) == "failed"


@pytest.mark.slow
def test_the_error_of_another_rank_is_said_where_rank_0_could_not(
    plays: Plays, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = plays("time.sleep(60) if rank == 0 else sys.exit(1)")
    (arguments.run / "log_rank1.txt").write_text("Traceback\nRewardError: no\n")
    assert launch(arguments, NODE) == 1
    assert capfd.readouterr().err.strip() == "error: process 1 failed: RewardError: no"


def failure(exitcode: int, timestamp: int = 100) -> Any:
    return SimpleNamespace(exitcode=exitcode, timestamp=timestamp)


def test_rank_0_says_by_itself_why_it_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log_rank1.txt").write_text("RewardError: no\n")
    (tmp_path / "STATUS").write_text("done\n")
    launch_module._report_failure({1: failure(1), 0: failure(1)}, RunFolder(tmp_path))
    assert not capfd.readouterr().err
    assert RunFolder(tmp_path).read_status() == "done", "all was done before a rank failed"


def test_a_rank_that_torchrun_had_to_kill_did_not_answer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failures = {0: failure(1), 2: failure(-15), 1: failure(-9, 100 + TORCHRUN_GRACE)}
    launch_module._report_failure(failures, RunFolder(tmp_path))
    assert capfd.readouterr().err == "error: process 1 did not answer, and was killed\n"


@pytest.mark.slow
def test_the_run_of_another_command_keeps_its_status(plays: Plays) -> None:
    arguments = plays("sys.exit(1)")
    with owned(arguments.run):
        assert launch(arguments, NODE) == 1
    assert status(arguments) == "running"


@pytest.mark.slow
@pytest.mark.parametrize(("restarts", "code"), [(1, 1), (2, 0)])
def test_failed_ranks_start_again_while_restarts_are_left(
    plays: Plays, caplog: pytest.LogCaptureFixture, restarts: int, code: int
) -> None:
    arguments = plays("sys.exit(7) if rank and attempt < 2 else end(0)")
    assert launch(arguments, NODE | {"restarts": restarts}) == code
    assert "failed (exitcode: 7) local_rank: 1" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=pytest.mark.whole if n == signal.SIGUSR2 else ()) for n in SIGNALS],
)
def test_a_signal_is_passed_on_and_is_no_failure(plays: Plays, tmp_path: Path, number: int) -> None:
    arguments = plays(
        f"signal.signal({int(number)}, lambda *_: end({128 + number}))",
        "pathlib.Path(f'{code.parent}/ready{rank}').touch()",
        f"pathlib.Path({str(tmp_path)!r}, f'ready{{rank}}').touch()",
        "time.sleep(60)",
    )

    def send() -> None:
        while len([*tmp_path.glob("ready*")]) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    threading.Thread(target=send).start()
    assert launch(arguments, NODE | {"timeout": 20, "restarts": 3}) == 128 + number


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "preempted")]
)
def test_a_signal_before_training_begins(
    plays: Plays, tmp_path: Path, number: int, word: str
) -> None:
    ready = f"pathlib.Path({str(tmp_path)!r}, f'ready{{rank}}').touch()"
    arguments = plays("signal.signal(2, signal.SIG_DFL)", ready, "time.sleep(60)")

    def send() -> None:
        while len([*tmp_path.glob("ready*")]) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    threading.Thread(target=send).start()
    assert launch(arguments, NODE) == 128 + number
    assert status(arguments) == word


@pytest.mark.slow
def test_ranks_that_do_not_stop_are_killed(
    plays: Plays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch_module, "GRACE", 0)
    arguments = plays(
        "signal.signal(15, signal.SIG_IGN)",
        "code.touch()",
        f"pathlib.Path({str(tmp_path)!r}, f'ready{{rank}}').touch()",
        "time.sleep(60)",
    )

    def send() -> None:
        while len([*tmp_path.glob("ready*")]) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send).start()
    assert launch(arguments, NODE) == 1
    assert "did not stop within 1 s of a signal, and were killed" in capfd.readouterr().err
    assert status(arguments) == "failed"


@pytest.mark.parametrize(
    ("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "preempted")]
)
def test_a_signal_while_libraries_are_imported(
    plays: Plays, monkeypatch: pytest.MonkeyPatch, number: int, word: str
) -> None:
    arguments = plays()

    def leave(code: int) -> None:
        raise SystemExit(code)

    class Importer:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "rlfactory.train.process.worker":
                os.kill(os.getpid(), number)

    package = importlib.import_module("rlfactory.train.process")
    monkeypatch.delattr(package, "worker", raising=False)
    monkeypatch.delitem(sys.modules, "rlfactory.train.process.worker", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Importer(), *sys.meta_path])
    monkeypatch.setattr(launch_module, "exit_at_once", leave)
    with pytest.raises(SystemExit) as left:
        run_or_launch(arguments, {"hardware": {"_target_": "rlfactory.hardware.local.Local"}})
    assert left.value.code == 128 + number
    assert status(arguments) == word


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
    with pytest.raises(PlanError, match="srun did not start this process"):
        require_possible({"hardware": {**NODE, "launcher": "slurm"}})
    alone = {"hardware": {**NODE, "launcher": "slurm", "processes": 1}}
    require_possible(alone)
    monkeypatch.setenv("SLURM_PROCID", "0")  # as a batch script has it
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    with pytest.raises(PlanError, match="type srun before the command"):
        require_possible(alone)
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    require_possible(alone)


def test_a_gpu_that_is_not_there_is_said_before_a_run_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = {"hardware": {"_target_": "rlfactory.hardware.local.Local", "device": "cuda"}}
    monkeypatch.setattr(launch_module, "lacks_gpu", lambda: True)
    with pytest.raises(PlanError, match="no GPU is visible here") as caught:
        require_possible(config)
    assert caught.value.problems[0].fix == "hardware.device=auto"
    require_possible({"hardware": {**config["hardware"], "device": "auto"}})
    monkeypatch.setattr(launch_module, "lacks_gpu", lambda: False)
    require_possible(config)


def test_a_timer_that_ends_itself_is_not_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dropped:
        def __init__(self, text: str) -> None:
            self.text = text

        def __del__(self) -> None:
            raise RuntimeError(self.text)

    monkeypatch.setattr(sys, "unraisablehook", launch_module._unless_timer_ends_itself)
    for text in ("cannot join current thread", "another"):
        Dropped(text)
    shown = capsys.readouterr().err
    assert "another" in shown
    assert "cannot join" not in shown
