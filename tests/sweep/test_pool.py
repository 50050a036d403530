"""A sweep that is killed, stopped or fails, and the same command again."""

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # each is a sweep in processes of its own

Drive = Callable[..., "subprocess.Popen[str]"]
Traced = Callable[[Path], dict[str, Any]]
FOLDER = Path("outputs/sweeps/small-tiny")


def ended(process: "subprocess.Popen[str]", within: float = 90) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=within)
    return process.returncode, out, err


def wait_for(condition: Callable[[], bool], within: float = 60) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def finished(folder: Path) -> dict[str, int]:
    return {p.parent.name: len(p.read_text().splitlines()) for p in folder.glob("*/finished")}


def test_killed_at_any_moment_and_begun_again_it_ends_as_if_undisturbed(
    drive: Drive, traced: Traced, tmp_path: Path
) -> None:
    assert ended(drive("sweep_dir=whole"))[0] == 0
    chance = random.Random(3)
    for _ in range(5):
        process = drive("sweep_dir=torn", "jobs=2", pace=0.03)
        time.sleep(0.2 + chance.uniform(0, 0.9))
        process.kill()
        process.communicate()
    code, out, _ = ended(drive("sweep_dir=torn", "jobs=2"))
    assert code == 0, out
    whole, torn = traced(tmp_path / "whole"), traced(tmp_path / "torn")
    assert {k: [x.replace("torn", "whole") for x in v] for k, v in torn.items()} == whole
    assert len(whole) == 6
    assert finished(tmp_path / "torn") == dict.fromkeys(whole, 1)


def test_jobs_of_a_killed_sweep_end_with_it(drive: Drive, tmp_path: Path) -> None:
    process = drive("rows=v-grpo-one", "seed=0", pace=0.5)
    run = tmp_path / FOLDER / "v-grpo-one-s0"
    wait_for(lambda: (run / "metrics.jsonl").exists())
    process.kill()
    process.communicate()
    wait_for(lambda: (run / "STATUS").read_text() == "preempted")


def test_a_process_that_outlives_its_sweep_is_waited_for(
    drive: Drive, stand_in: Path, tmp_path: Path
) -> None:
    whole = stand_in.read_text()
    stand_in.write_text(whole.replace("os._exit(128 + number)", "return"))
    first = drive("rows=v-grpo-one", "seed=0", pace=1.5)  # longer than a command needs to begin
    wait_for(lambda: (tmp_path / FOLDER / "v-grpo-one-s0" / "metrics.jsonl").exists())
    first.kill()
    first.communicate()
    code, out, err = ended(drive("rows=v-grpo-one"))
    assert code == 0, err
    assert "v-grpo-one-s0  held" in out
    assert finished(tmp_path / FOLDER) == {"v-grpo-one-s0": 1, "v-grpo-one-s1": 1}


def test_two_commands_do_not_run_one_sweep(drive: Drive, tmp_path: Path) -> None:
    first = drive("seed=0", pace=2)
    wait_for(lambda: (tmp_path / FOLDER / "sweep.json").exists())
    code, _, err = ended(drive("seed=0"))
    assert code == 2
    assert "another command runs the sweep" in err
    first.terminate()
    ended(first)


@pytest.mark.parametrize(
    ("number", "word"), [(2, "interrupted"), (15, "preempted"), (1, "preempted"), (10, "preempted")]
)
def test_being_asked_to_stop_is_passed_on(
    drive: Drive, tmp_path: Path, number: int, word: str
) -> None:
    process = drive("seed=0", "jobs=2", pace=1)
    first, staged, later = (
        tmp_path / FOLDER / name
        for name in ("v-grpo-one-s0", "two-stages-stage-1-s0", "two-stages-stage-2-s0")
    )
    wait_for(lambda: all((run / "metrics.jsonl").exists() for run in (first, staged)))
    process.send_signal(number)
    code, out, err = ended(process)
    assert code == 128 + number
    assert err.strip() == (
        "stopped; finished and partial runs are kept. To resume:"
        " rlfactory sweep small.yaml size=tiny seed=0 jobs=2"
    )
    assert (first / "STATUS").read_text() == (staged / "STATUS").read_text() == word
    assert not later.exists()
    assert [line.split()[1] for line in out.splitlines()[-3:]] == ["interrupted"] * 2 + ["not"]
    assert ended(drive("seed=0"))[0] == 0


def test_a_job_that_ignores_being_asked_is_killed_by_the_third(
    drive: Drive, stand_in: Path, tmp_path: Path
) -> None:
    stand_in.write_text(stand_in.read_text().replace("os._exit(128 + number)", "return"))
    process = drive("rows=v-grpo-one", "seed=0", pace=4)
    run = tmp_path / FOLDER / "v-grpo-one-s0"
    wait_for(lambda: (run / "metrics.jsonl").exists())
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    assert ended(process, within=10)[0] == 143


def test_a_failure_leaves_the_others_be_and_is_tried_again(drive: Drive, tmp_path: Path) -> None:
    for name in ("v-grpo-one-s1", "two-stages-stage-1-s0"):
        (tmp_path / f"fail-{name}").touch()
    code, out, _ = ended(drive())
    assert code == 1
    told = out[out.index("\n\n", out.index("running")) :]
    assert "v-grpo-one-s0          done         iteration 6" in told
    assert "v-grpo-one-s1          failed       iteration 2" in told
    assert "two-stages-stage-2-s0  blocked" in told
    assert "two-stages-stage-2-s1  done         iteration 8" in told
    assert "  error: no more memory\n  Traceback" in told
    assert "  RuntimeError: no more memory\n" in told
    assert "begins with the weights of two-stages-stage-1-s0, which is not done" in told
    for path in tmp_path.glob("fail-*"):
        path.unlink()
    code, out, _ = ended(drive())
    assert code == 0
    assert "jobs       6: 3 done, 2 retry, 1 new" in out
    assert set(finished(tmp_path / FOLDER).values()) == {1}


def test_a_folder_whose_making_was_cut_off_is_made_again(drive: Drive, tmp_path: Path) -> None:
    run = tmp_path / FOLDER / "v-grpo-one-s0"
    assert ended(drive("rows=v-grpo-one", "seed=1"))[0] == 0
    (run / "checkpoints").mkdir(parents=True)
    (run / "STATUS").write_text("running\n")
    assert ended(drive("rows=v-grpo-one", "seed=0"))[0] == 0
    assert len(json.loads((tmp_path / FOLDER / "sweep.json").read_text())["jobs"]) == 2


def test_gpus_go_round(drive: Drive, tmp_path: Path) -> None:
    code, _, err = ended(drive("gpus=4,7", "rows=v-grpo-one", pace=0.1))
    assert code == 0, err
    told = {p.read_text().strip() for p in (tmp_path / FOLDER).glob("*/finished")}
    assert told == {"4", "7"}
