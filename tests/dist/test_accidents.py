"""What may happen to a run of several processes, from its start to the loss of one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import run as torchrun

from rlfactory.run.folder import RunFolder

pytestmark = [pytest.mark.dist, pytest.mark.timeout(600)]

Ran = Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]]
Traces = Callable[[Path], dict[str, Any]]
Typed = Callable[..., Any]

SMALL = [
    *("evaluation.prompts=2", "evaluation.grid=2", "evaluation.preview_every=0"),
    *("prompts_per_iteration=2", "group_size=2", "updates_per_iteration=1", "schedule.steps=3"),
    *("iterations=3", "checkpoint.every=1", "checkpoint.keep=null"),
]
TWO = ["hardware=ddp", "hardware.device=cpu", "hardware.processes=2", "hardware.timeout=60"]


ENV = {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "OMP_NUM_THREADS": "1"}
RLFACTORY = ["-m", "rlfactory.cli"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


def both(*words: str, **more: Any) -> dict[str, Any]:
    return {"processes": 2, **more, "words": [*SMALL, *TWO, *words]}


def launched(fault: str, *words: str) -> dict[str, Any]:
    """The command with a fault, which starts both processes through torchrun.

    Those that are left after one has failed are given 5 seconds in the place of 30.
    """
    return both(*words, processes=1, env={"0": {"RLFACTORY_FAULT": fault}}, grace=5)


@pytest.mark.parametrize("strategy", [pytest.param("ddp", marks=pytest.mark.whole), "fsdp2"])
def test_a_lost_process_ends_the_run_which_goes_on(
    strategy: str,
    ran: Ran,
    tmp_path: Path,
    traces: Traces,
) -> None:
    chosen = f"hardware.strategy={strategy}"
    (lost,) = ran([launched("between_updates:kill:3@1", chosen, "run_dir=lost")])
    assert lost["codes"] == [1], lost
    assert "process 1 was ended by SIGKILL" in lost["err"]
    assert "another process does not answer any more" in lost["err"]
    assert (tmp_path / "lost" / "STATUS").read_text() == "failed\n"
    assert not (tmp_path / "lost" / "OWNER").exists()
    again, whole = ran([both(chosen, "run_dir=lost"), both(chosen, "run_dir=whole")])
    assert again["codes"] == whole["codes"] == [0, 0], (again, whole)
    assert "resuming after iteration 2" in again["said"]
    assert traces(tmp_path / "lost") == traces(tmp_path / "whole")


def test_restarts_recover_by_themselves(ran: Ran, tmp_path: Path) -> None:
    words = ("run_dir=run", "hardware.restarts=1")
    (found,) = ran([launched("between_updates:kill:3@0", *words)])
    logs = [path.read_text() for path in (tmp_path / "run").glob("log_rank*.txt")]
    assert found["codes"] == [0], (found["err"], logs)
    assert "failed (exitcode: -9) local_rank: 0" in found["err"], "torchrun's own line"
    assert "starting all processes again, from the newest checkpoint" in found["err"]
    assert "resuming after iteration 2" in found["out"]
    assert (tmp_path / "run" / "STATUS").read_text() == "done\n"


@pytest.mark.parametrize(
    ("number", "code", "status"),
    [
        pytest.param(signal.SIGINT, 130, "interrupted", marks=pytest.mark.whole),
        pytest.param(signal.SIGTERM, 143, "preempted", marks=pytest.mark.whole),
        (signal.SIGKILL, -9, "preempted"),  # its ranks are told by the system, and save
    ],
)
def test_a_signal_to_the_command_alone_stops_all_ranks(
    tmp_path: Path, number: int, code: int, status: str
) -> None:
    run = RunFolder(tmp_path / "run")
    words = [
        *RLFACTORY,
        *SMALL,
        *TWO,
        "iterations=500",
        "checkpoint.every=0",
        f"run_dir={run.path}",
    ]
    with (tmp_path / "said").open("wb") as said:
        command = subprocess.Popen(
            [sys.executable, *words], env=os.environ | ENV, stdout=said, stderr=said
        )
        end = time.monotonic() + 200
        while not run.metrics.exists() or len(run.metrics.read_text().splitlines()) < 3:
            assert command.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        command.send_signal(number)
        assert command.wait() == code
    # of a killed command's ranks, this is the last that is written: OWNER is gone before it
    while "To resume: rlfactory resume" not in (text := (tmp_path / "said").read_text()):
        assert time.monotonic() < end, text
        time.sleep(0.1)
    assert run.read_status() == status
    assert not (run.path / "OWNER").exists()
    assert [*run.checkpoints.glob("step_*")], "what was done is saved"
    assert text.count("To resume: rlfactory resume") == 1
    assert "Traceback" not in text


def test_a_process_that_hangs_is_ended_after_the_timeout(ran: Ran, tmp_path: Path) -> None:
    words = ["hardware.timeout=8", "run_dir=run"]
    (found,) = ran([launched("between_updates:hang:3@1", *words)])
    assert found["codes"] == [1], found
    assert "another process does not answer any more" in found["err"]
    assert "process 1 did not answer, and was killed" in found["err"]
    assert (tmp_path / "run" / "STATUS").read_text() == "failed\n"
    (again,) = ran([both(*words)])
    assert again["codes"] == [0, 0], again


def test_torchrun_recovers_by_itself(ran: Ran, tmp_path: Path) -> None:
    words = ["--standalone", "--nproc_per_node=2", "--max-restarts=1", *RLFACTORY, *SMALL, *TWO]
    fault = {"RLFACTORY_FAULT": "between_updates:kill:3@1"}
    asked = {"script": torchrun.__file__, "words": [*words, "run_dir=run"], "env": {"0": fault}}
    (found,) = ran([{**asked, "processes": 1, "grace": 5}])
    assert found["codes"] == [0], found
    assert "resuming after iteration 2" in found["out"]
    assert (tmp_path / "run" / "STATUS").read_text() == "done\n"


@pytest.mark.whole  # the test before starts them twice, forked
def test_torchrun_starts_the_processes_as_well(typed: Typed, tmp_path: Path) -> None:
    found = typed(*TORCHRUN, *RLFACTORY, *SMALL, *TWO, "run_dir=run")
    assert found.returncode == 0, found.stderr
    assert "failed to bind" not in found.stderr
    assert found.stdout.count("iteration 3/3") == 1
    assert (tmp_path / "run" / "STATUS").read_text() == "done\n"


def test_what_is_wrong_is_said_once(ran: Ran, tmp_path: Path) -> None:
    found = ran(
        [
            both("run_dir=a", others={"1": ["seed=1"]}),
            both("run_dir=b", "hardware.processes=1"),
            both("run_dir=c", "optimizer.lr=-1"),
            both("run_dir=d", env={"1": {"RLFACTORY_FAULT": "scoring:raise"}}),
        ]
    )
    different, miscounted, refused, alone = found
    assert different["codes"] == [1, 1], different
    assert different["said"].count("process 1 has another configuration than process 0") == 1
    assert miscounted["codes"] == [1, 1], miscounted
    said = "hardware.processes=1, but the launcher has started 2"
    assert miscounted["said"].count(said) == 1
    assert refused["codes"] == [2, 2], refused
    assert refused["said"].count("error: optimizer.lr") == 1
    assert not (tmp_path / "c").exists()
    assert alone["codes"] == [1, 1], alone
    error = "rlfactory.utils.fault_injection.FaultError: requested at scoring by RLFACTORY_FAULT"
    said = f"log_rank1: {error}"
    assert alone["said"].count(said) == 1
    assert alone["said"].count("Traceback") == 0
    assert (tmp_path / "d" / "STATUS").read_text() == "failed\n"


def test_tasks_of_slurm_are_processes(ran: Ran, tmp_path: Path) -> None:
    words = ["hardware=slurm", "iterations=1", "run_dir=run"]
    asked = both(*words, slurm=True)
    (found,) = ran([asked])
    assert found["codes"] == [0, 0], found
    assert (tmp_path / "run" / "STATUS").read_text() == "done\n"
