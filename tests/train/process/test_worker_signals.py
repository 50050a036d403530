"""Runs stopped from outside, through the command, and resumed: the same to the last bit."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from warm_process import Warm

from rlfactory.run.folder import RunFolder

SOURCE = Path(__file__).parents[3] / "src"
PROCESSES = Path(__file__).parents[2] / "processes.py"
SMALL = [
    *("hardware=cpu", "iterations=2", "prompts_per_iteration=2", "group_size=2"),
    *("updates_per_iteration=2", "evaluation.prompts=2", "evaluation.grid=2"),
    *("evaluation.every=2", "evaluation.preview_every=1", "checkpoint.best=false"),
]
KINDS = {
    "images": [
        *("algo=grpo", "model=tiny_sd3", "model.size=32", "schedule.steps=4", "sample_batch=2"),
    ],
    "texts": ["algo=ppo", "model=tiny_gpt2", "reward=length", "dynamics.length=8"],
}
Attempt = dict[str, Any]


@pytest.fixture(scope="module", params=["images", pytest.param("texts", marks=pytest.mark.whole)])
def stopped(
    request: pytest.FixtureRequest, warm: Warm, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Attempt]]:
    """A folder of runs that were stopped once and went on, and what was seen of each."""
    folder = tmp_path_factory.mktemp(request.param)
    words = [str(folder), *SMALL, *KINDS[request.param]]
    ran = warm.command(folder, *words, script=str(PROCESSES))
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return folder, {attempt["phase"]: attempt for attempt in found}


@pytest.mark.slow
@pytest.mark.timeout(900)  # of which the fixture takes all but a second
@pytest.mark.parametrize("phase", ["sample", "learn", "evaluate", "saving"])
def test_stopped_in_any_phase_it_ends_bit_for_bit(
    stopped: tuple[Path, dict[str, Attempt]], phase: str, traces: Callable[[Path], dict[str, Any]]
) -> None:
    folder, attempts = stopped
    seen = attempts[phase]
    assert (seen["code"], seen["status"]) == (143, "preempted"), seen["said"]
    assert "Preempted; the run so far is saved in" in seen["said"]
    assert "Traceback" not in seen["said"] + seen["more"]
    if phase == "saving":
        assert seen["kept"] == ["step_000001", "step_000002"]
    else:
        assert seen["passes"] == 0, "nothing more is computed"
        assert seen["kept"] == [f"step_{2 if phase == 'evaluate' else 1:06d}"]
    assert seen["again"] == 0, seen["more"]
    assert RunFolder(folder / phase).read_status() == "done"
    assert not (folder / phase / "OWNER").exists()
    assert ends(traces(folder / phase)) == ends(traces(folder / "whole"))
    print(f"{folder.name}, {phase}: saved {seen['seconds']:.2f} s after the signal")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_second_signal_stops_at_once(stopped: tuple[Path, dict[str, Attempt]]) -> None:
    seen = stopped[1]["twice"]
    assert (seen["code"], seen["status"], seen["kept"]) == (143, "preempted", [])
    assert seen["passes"] == 0
    assert "Traceback" not in seen["said"]
    assert seen["again"] == 0, seen["more"]


def ends(found: dict[str, Any]) -> dict[str, Any]:
    """What a run comes to, wherever it was saved on its way."""
    state = {k: v for k, v in found["step_000002/state"].items() if k != "timely"}
    rest = {k: v for k, v in found.items() if not k.startswith("step_")}
    last = {k: found[f"step_000002/{k}"] for k in ("weights", "optimizer")}
    return rest | last | state


def command(run: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    """Training in a process of its own."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "rlfactory.cli.app",
            f"run_dir={run}",
            *SMALL,
            *KINDS["images"],
            *words,
        ],
        env=os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("works", [True, pytest.param(False, marks=pytest.mark.whole)])
def test_under_slurm_the_job_goes_back_into_the_queue(tmp_path: Path, works: bool) -> None:
    run, told = tmp_path / "run", tmp_path / "told"
    script = tmp_path / "scontrol"
    owner = f"ls {run}/OWNER >> {told} 2>&1"  # somebody else may begin at once
    script.write_text(
        f'#!/bin/sh\n{owner}\necho "$@" >> {told}\necho no >&2\nexit {int(not works)}\n'
    )
    script.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    process = command(run, "iterations=500", SLURM_JOB_ID="42", PATH=path)
    metrics, end = RunFolder(run).metrics, time.monotonic() + 200
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 2:
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.1)
    assert json.loads((run / "OWNER").read_text())["pid"] == process.pid
    second = command(run, "iterations=500")
    said = second.communicate(timeout=200)[1]
    assert second.returncode == 2
    assert f"in use by process {process.pid} on" in said
    process.send_signal(signal.SIGUSR1)
    said = process.communicate(timeout=200)[1]
    assert process.returncode == (0 if works else 138)
    assert RunFolder(run).read_status() == "preempted"
    missing, asked = told.read_text().splitlines()
    assert "No such file" in missing
    assert asked == "requeue 42"
    last = "job 42 is in the queue again" if works else "requeue 42 failed: no; it is not in the"
    assert last in said
