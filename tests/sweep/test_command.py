"""`rlfactory sweep`: what it prints and refuses, with every job composed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory import cli
from rlfactory.sweep import command, source

Refused = Callable[..., str]
SOURCE = str(Path(cli.__file__).parents[1])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sheet: Path) -> None:
    monkeypatch.chdir(tmp_path)


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
    assert any("evaluations of the network; 20 iterations" in line for line in lines)
    assert lines[-1] == (
        "new     rlfactory model=tiny_sd3 algo=vgrpo iterations=8 seed=3"
        """ 'begin_from='"'"'my sweep/two-stages-stage-1-s3'"'"''"""
        """ 'run_dir='"'"'my sweep/two-stages-stage-2-s3'"'"''"""
    )


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
        (["small.yaml", "size=tinny"], "there is no size tinny"),
        (["small.yaml", "size=tiny", "seed="], "seed: is empty"),
        (["small.yaml", "size=tiny", "optimzer.lr=1,2", "rows=v*"], "Did you mean optimizer.lr?"),
        (["small.yaml", "size=tiny", "rows=vgrp"], "there is no row vgrp that is run"),
        (["small.yaml", "size=tiny", "algo=vgrop", "rows=v*"], "every job of the 2"),
        (["small.yaml", "size=tiny", "hydra/launcher=ray"], "pip install hydra-ray-launcher"),
        (["small.yaml", "size=tiny", "hydra/sweeper=random"], "random has nothing to search"),
        (["small.yaml", "size=tiny", "search.optimizer.lr=3"], "allowed are log"),
    ],
)
def test_refused_before_anything_is_written(refused: Refused, words: list[str], said: str) -> None:
    assert said in refused("sweep", *words)


def test_an_axis_that_does_not_exist(refused: Refused, sheet: Path) -> None:
    sheet.write_text(sheet.read_text() + "axes: {optimzer.lr: [1, 2]}\n")
    assert "optimzer.lr: there is no such key" in refused("sweep", "small.yaml", "size=tiny")


def test_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(source, "shipped_folder", lambda name: Path.cwd())
    for words in (["list", "sweeps"], ["sweep"]):
        assert cli.dispatch(words) == 0
        assert "  small                A small table\n" in capsys.readouterr().out


def test_several_values_are_an_axis(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["small.yaml", "size=tiny", "seed=0", "rows=v*", "group_size=4,8", "--plan"]
    assert command.sweep(words) == 0
    shown = capsys.readouterr().out
    assert "run_dir=outputs/sweeps/small-tiny/v-grpo-one-group-size-8-s0" in shown


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
