"""Several runs from one command: a folder for each, and one that fails leaves the others be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfactory.cli import app
from rlfactory.config.problems import PlanError
from rlfactory.sweep import process
from rlfactory.train.process import worker
from rlfactory.train.process.run_arguments import RunArguments


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """The frozen configurations of the jobs that began; the one with seed 1 fails."""
    configs: list[dict[str, Any]] = []

    def run(arguments: RunArguments) -> int:
        configs.append(yaml.safe_load((arguments.run / "config.yaml").read_text()))
        return 1 if configs[-1]["seed"] == 1 else 0

    monkeypatch.setattr(worker, "run_main_process", run)
    monkeypatch.setattr("sys.argv", ["rlfactory"])
    monkeypatch.chdir(tmp_path)
    return configs


@pytest.mark.slow
def test_one_failure_leaves_the_others_be(
    ran: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.dispatch(["-m", "algo=grpo,nft", "seed=1,2"]) == 1
    assert [(c["choices"]["algo"], c["seed"]) for c in ran] == [
        ("grpo", 1),
        ("grpo", 2),
        ("nft", 1),
        ("nft", 2),
    ]
    assert ran[0]["choices"]["dynamics"] == "flow_sde"
    (last,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("failed")]
    assert "algo=grpo,seed=1" in last
    assert "seed=2" not in last
    assert [p.name for p in tmp_path.iterdir()] == ["multirun"], "no stray files"
    (sweep,) = (tmp_path / "multirun").iterdir()
    names = {"algo=grpo,seed=1", "algo=grpo,seed=2", "algo=nft,seed=1", "algo=nft,seed=2"}
    folders = [p for p in sweep.iterdir() if p.is_dir()]
    assert {p.name for p in folders} == names
    assert all((p / "plan.txt").is_file() for p in folders)


@pytest.mark.slow
def test_all_well_is_zero(ran: list[dict[str, Any]]) -> None:
    assert app.dispatch(["--multirun", "seed=2,3"]) == 0
    assert [c["seed"] for c in ran] == [2, 3]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-m", "algo=grpo,ntf"], "there is no option ntf"),
        (["-m", "seed=1,2", "sed=1"], "Did you mean seed?"),
        (["-m", "algo=grpo,nft", "algo.clip_range=1e-4"], "algo.clip_range: there is no such key"),
        (["-m", "seed=range(0,2)", "algo.bta=1,2"], "Did you mean algo.beta?"),
        (["--cfg", "job", "sed=1"], "Did you mean seed?"),
    ],
    ids=str,
)
def test_mistakes_are_said_before_the_first_run(
    refused: Callable[..., str], words: list[str], said: str
) -> None:
    shown = refused(*words)
    assert said in shown
    assert shown.count("error:") == 1


def test_an_impossible_job_is_reported_before_the_first_one_begins(
    refused: Callable[..., str],
) -> None:
    shown = refused("-m", "algo=grpo,nft", "group_size=0,4")
    assert "error: group_size: is 0; allowed is a whole number >= 1 (in algo=grpo" in shown
    assert shown.count("error:") == 1


@pytest.mark.slow
def test_names_have_what_varies_and_run_dir_is_their_parent(
    ran: list[dict[str, Any]], tmp_path: Path
) -> None:
    fixed = ["iterations=3", "optimizer.weight_decay=0.001", "prompts_per_iteration=4"]
    assert app.dispatch(["-m", *fixed, "run_dir=here", "seed=2,3"]) == 0
    assert {p.name for p in (tmp_path / "here").iterdir()} == {"seed=2", "seed=3"}
    assert [c["run_dir"] for c in ran] == ["here/seed=2", "here/seed=3"]


def test_a_folder_of_another_run_is_refused_before_the_first_job(
    ran: list[dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "here" / "seed=3").mkdir(parents=True)
    (tmp_path / "here" / "seed=3" / "thesis.txt").write_text("mine")
    with pytest.raises(PlanError, match=r"seed=3 is not empty .* \(in seed=3\)"):
        app.dispatch(["-m", "run_dir=here", "seed=2,3"])
    assert not ran


@pytest.mark.slow
def test_a_run_dir_that_varies_is_the_folder_itself(
    ran: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert app.dispatch(["-m", "run_dir=a,b", "seed=2"]) == 0
    assert [c["run_dir"] for c in ran] == ["a", "b"]


@pytest.mark.slow
def test_a_command_longer_than_a_file_name_runs(ran: list[dict[str, Any]], tmp_path: Path) -> None:
    starts = f"prompts.starts=[{'x' * 150}0],[{'x' * 150}1]"
    assert app.dispatch(["-m", "seed=2,3", "run_dir=here", "model=tiny_gpt2", starts]) == 0
    names = sorted(p.name for p in (tmp_path / "here").iterdir())
    assert [name[:10] for name in names] == ["000_seed=2", "001_seed=2", "002_seed=3", "003_seed=3"]
    assert max(map(len, names)) <= 120


def test_check_prints_the_plan_of_every_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.dispatch(["check", "-m", "algo=grpo,nft", "run_dir=here"]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.startswith("job 1 of 2: algo=grpo\n")
    assert "model          tiny_sd3" in first
    assert second.startswith("job 2 of 2: algo=nft\n")
    assert "algo           nft" in second
    assert "run folder     here/algo=nft" in second
    assert "tiny_sd3" not in second, "rows that are equal are printed once"
    assert not [*tmp_path.iterdir()]


def test_check_of_a_multirun_refuses_as_training_does(refused: Callable[..., str]) -> None:
    assert "there is no option ntf" in refused("check", "-m", "algo=grpo,ntf")


def test_training_writes_what_the_worker_reads(ran: list[dict[str, Any]], tmp_path: Path) -> None:
    assert app.dispatch(["run_dir=here", "optimizer.lr=1e-5"]) == 0
    (config,) = ran
    assert config["optimizer"]["lr"] == 1e-5
    assert config["run_dir"] == "here"
    assert "run folder" in (tmp_path / "here" / "plan.txt").read_text()


@pytest.mark.slow
def test_a_defect_in_one_job_leaves_the_others_be(
    ran: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[Path] = []

    def run(arguments: RunArguments) -> int:
        begun.append(arguments.run)
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(worker, "run_main_process", run)
    assert app.dispatch(["-m", "seed=2,3"]) == 1
    assert len(begun) == 2
    assert capsys.readouterr().err.count("ZeroDivisionError: a defect") == 2


@pytest.mark.slow
@pytest.mark.parametrize(("code", "ended"), [(130, KeyboardInterrupt), (143, SystemExit)])
def test_an_interruption_ends_them_all(
    ran: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    ended: type[BaseException],
) -> None:
    begun: list[Path] = []

    def run(arguments: RunArguments) -> int:
        begun.append(arguments.run)
        return code

    monkeypatch.setattr(worker, "run_main_process", run)
    with pytest.raises(ended):
        app.dispatch(["-m", "seed=2,3"])
    assert len(begun) == 1


def test_a_launcher_of_hydra_runs_the_jobs_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: dict[str, Any] = {}

    def launch(name: str, words: list[str], folder: Path, work: Any, count: int) -> list[Any]:
        told.update(name=name, words=words, count=count)
        for command in work.args[0]:
            told.setdefault("commands", []).append(command.command[4:])
            command.run.mkdir(parents=True)
            status = "failed" if "seed=1" in command.command else "done"
            (command.run / "STATUS").write_text(status)
        return []

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process, "run_with_hydra_launcher", launch)
    monkeypatch.setattr("rlfactory.cli.multirun.require_launcher", lambda name, words: None)
    words = ["seed=1,2", "run_dir=all", "hydra/launcher=submitit_slurm", "hydra.launcher.mem_gb=9"]
    assert app.dispatch(["check", "-m", *words]) == 0
    assert app.dispatch(["-m", *words]) == 1
    assert (told["name"], told["count"]) == ("submitit_slurm", 2)
    assert told["words"] == ["hydra.launcher.array_parallelism=2", "hydra.launcher.mem_gb=9"]
    assert told["commands"] == [[f"seed={seed}", f"run_dir='all/seed={seed}'"] for seed in (1, 2)]
    shown = capsys.readouterr()
    assert "seed=2: done" in shown.out
    assert "failed: seed=1" in shown.err


def test_a_launcher_that_there_is_not_is_a_problem_of_the_plan() -> None:
    with pytest.raises(PlanError, match="there is no launcher nonsense"):
        app.dispatch(["check", "-m", "seed=1,2", "hydra/launcher=nonsense"])
