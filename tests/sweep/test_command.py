"""`rlfactory sweep`: what it prints and refuses, with every job composed."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.cli import app
from rlfactory.hardware.process_environment import installed_gpus
from rlfactory.sweep import command, sweep_file
from rlfactory.sweep.command import gpu_of, gpus


def test_round_robin() -> None:
    assert [gpu_of(slot, ["2", "5"]) for slot in range(3)] == ["2", "5", "2"]
    assert gpu_of(1, []) is None


def test_what_is_visible_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-ab")
    assert gpus() == ["3", "GPU-ab"]
    assert gpus(["0"]) == ["0"]
    for none in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)
        assert gpus() == []


@pytest.mark.parametrize(
    ("script", "found"), [("echo 0, GPU-a, 1; echo 1, GPU-b, 1", ["0", "1"]), ("exit 9", [])]
)
def test_else_all_that_the_driver_knows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, found: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    installed_gpus.cache_clear()
    assert gpus() == []
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    installed_gpus.cache_clear()
    assert gpus() == found
    installed_gpus.cache_clear()


Refused = Callable[..., str]
SOURCE = str(Path(app.__file__).parents[1])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sheet: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_the_plan_is_shown_and_nothing_is_written_and_torch_is_not_needed(
    sheet: Path, tmp_path: Path
) -> None:
    script = (
        "import sys\nfrom rlfactory import cli\n"
        "try:\n    cli.main()\nexcept SystemExit as end:\n    code = end.code\n"
        "heavy = {'torch', 'numpy', 'scipy', 'matplotlib', 'optuna'} & set(sys.modules)\n"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    before = sorted(tmp_path.rglob("*"))
    words = ["sweep", "small.yaml", "size=tiny", "seed=3", "sweep_dir=my sweep", "--plan"]
    ran = subprocess.run(
        [sys.executable, "-c", script, *words],
        env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert sorted(tmp_path.rglob("*")) == before
    lines = ran.stdout.splitlines()
    assert lines[0] == "Small: A paper, Table 1"
    assert "  jobs       3: 3 new" in lines
    assert any("forward passes; 20 iterations" in line for line in lines)
    assert lines[-1] == (
        "new     rlfactory model=tiny_sd3 algo=vgrpo iterations=8 seed=3"
        """ 'begin_from='"'"'my sweep/two-stages-stage-1-s3'"'"''"""
        """ 'run_dir='"'"'my sweep/two-stages-stage-2-s3'"'"''"""
    )


def test_a_row_alone_has_the_stages_that_it_shares(
    sheet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sheet.open("a") as file:
        file.write("  - name: other end\n    stages: [[algo=nft], [algo=awm]]\n")
    assert command.sweep(["small.yaml", "size=tiny", "rows=other-end", "seed=0", "--plan"]) == 0
    shown = capsys.readouterr().out
    assert "two-stages-stage-1-s0" in shown
    assert "two-stages-stage-2-s0" not in shown
    assert "begin_from=outputs/sweeps/small-tiny/two-stages-stage-1-s0" in shown


def test_a_row_is_named_by_its_title_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--plan", "small.yaml", "size=tiny", "rows=V-GRPO, one", "seed=0"]
    assert command.sweep(words) == 0
    assert "1: 1 new" in capsys.readouterr().out


@pytest.mark.slow
def test_published_hours_belong_to_the_full_form(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert command.sweep(["small.yaml", "rows=v-*", "--plan"]) == 0
    shown = capsys.readouterr().out
    assert "about 4 GPU-hours" in shown
    assert "1: 1 new" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "there is no sweep nothing"),
        (["nothing.yaml"], "there is no file nothing.yaml"),
        (["nothing.yml"], "there is no file nothing.yml"),
        (["small.yaml", "size=tinny"], "there is no size tinny"),
        (["small.yaml", "size=tiny", "seed="], "seed: is empty"),
        (["small.yaml", "size=tiny", "optimzer.lr=1,2", "rows=v*"], "Did you mean optimizer.lr?"),
        (["small.yaml", "size=tiny", "rows=vgrp"], "there is no row vgrp; known are"),
        (["small.yaml", "size=tiny", "algo=vgrop", "rows=v*"], "every job of the 2"),
        (["small.yaml", "size=tiny", "hydra/launcher=ray"], "pip install hydra-ray-launcher"),
        (["small.yaml", "size=tiny", "hydra/sweeper=random"], "needs at least one key to search"),
        (["small.yaml", "size=tiny", "search.optimizer.lr=3"], "allowed are log"),
    ],
)
def test_refused_before_anything_is_written(refused: Refused, words: list[str], said: str) -> None:
    assert said in refused("sweep", *words)


def test_an_axis_that_does_not_exist(refused: Refused, sheet: Path) -> None:
    sheet.write_text(sheet.read_text() + "axes: {optimzer.lr: [1, 2]}\n")
    assert "optimzer.lr: there is no such key" in refused("sweep", "small.yaml", "size=tiny")


def test_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sweep_file, "packaged_folder", lambda name: Path.cwd())
    for words in (["list", "sweeps"], ["sweep"]):
        assert app.dispatch(words) == 0
        assert "  small                A small table\n" in capsys.readouterr().out


def test_several_values_are_an_axis(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["small.yaml", "size=tiny", "seed=0", "rows=v*", "group_size=4,8", "--plan"]
    assert command.sweep(words) == 0
    shown = capsys.readouterr().out
    assert "run_dir=outputs/sweeps/small-tiny/v-grpo-one-group-size-8-s0" in shown


@pytest.mark.slow
def test_the_folder_of_other_overrides(drive: Callable[..., "subprocess.Popen[str]"]) -> None:
    first = drive("rows=v-grpo-one", "seed=0")
    first.communicate(timeout=30)
    assert first.returncode == 0
    again = drive("rows=v-grpo-one", "seed=0,1", "group_size=4", "--plan")
    _, err = again.communicate(timeout=30)
    assert again.returncode == 2
    assert "v-grpo-one-s0 now has group_size=4" in err
    jobs = json.loads(Path("outputs/sweeps/small-tiny/sweep.json").read_text())["jobs"]
    assert [job["name"] for job in jobs] == ["v-grpo-one-s0"]
