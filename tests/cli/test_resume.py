"""Going on with a language model's run, through the command."""

import json
import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfactory.cli import app
from rlfactory.cli.resume import create_run
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.run import lock
from rlfactory.run.folder import RunFolder
from rlfactory.train.learner import Learner

LETTERS = """
def letters(prompts, completions):
    return [sum(c.isalpha() for c in text) for text in completions]
"""


class KilledError(BaseException):
    """What nobody catches, as a kill is not."""


@pytest.fixture(scope="module")
def words(gpt2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    file = tmp_path_factory.mktemp("judge") / "judge.py"
    file.write_text(LETTERS)
    return [
        *("model=gpt2", f"model.path={gpt2_folder}", "hardware=cpu", "algo=ppo"),
        *("reward=function", f"reward.function={file}:letters", "prompts.starts=[a, the]"),
        *("iterations=4", "prompts_per_iteration=8", "epochs=2", "updates_per_iteration=2"),
        *("dynamics.length=8", "evaluation.prompts=6", "evaluation.every=2"),
        *("evaluation.preview_every=1", "checkpoint.every=1", "checkpoint.keep=null"),
        "regularizer.coefficient._target_=rlfactory.regularizer.coefficient.Proportional",
        *("regularizer.coefficient.value=0.5", "+regularizer.coefficient.target=0.01"),
        "+regularizer.coefficient.horizon=100",
    ]


def train(run: Path, words: list[str], *more: str) -> int:
    return app.dispatch([f"run_dir={run}", *words, *more])


@pytest.fixture(scope="module")
def finished(undrawn: None, tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> Path:
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert train(run, words) == 0
    return run


@pytest.mark.slow
def test_killed_resumed_and_typed_again_it_ends_bit_for_bit(
    finished: Path,
    words: list[str],
    traces: Callable[[Path], dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, updates = tmp_path / "run", list[int]()
    follow = Learner._update_weight_sets

    def killed(learner: Learner, *arguments: Any) -> Any:
        updates.append(1)
        if len(updates) == 8:
            raise KilledError
        return follow(learner, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "_update_weight_sets", killed)
        with pytest.raises(KilledError):
            train(run, words)
    assert RunFolder(run).read_status() == "running"
    capsys.readouterr()
    assert app.dispatch(["resume", str(run), "--until", "3"]) == 0
    shown = capsys.readouterr()
    assert "resuming after iteration 1 of 4" in shown.out
    assert f"To resume: rlfactory resume {run}" in shown.err
    assert RunFolder(run).read_status() == "paused"
    assert app.dispatch(["resume", str(run), "--until", "2"]) == 0, "it has gone further"
    assert train(run, words) == 0
    assert RunFolder(run).read_status() == "done"
    assert traces(run) == traces(finished)


@pytest.mark.slow
def test_muon_goes_on_bit_for_bit(
    words: list[str],
    traces: Callable[[Path], dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = ["optimizer=muon", "iterations=2", "learning_rate.schedule=cosine"]
    assert train(tmp_path / "whole", words, *more) == 0
    updates, update = list[int](), Learner._update

    def killed(learner: Learner, *arguments: Any, **named: Any) -> Any:
        updates.append(1)
        if len(updates) == 6:  # the second iteration's second
            raise KilledError
        return update(learner, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "_update", killed)
        with pytest.raises(KilledError):
            train(tmp_path / "parts", words, *more)
    assert app.dispatch(["resume", str(tmp_path / "parts")]) == 0
    assert traces(tmp_path / "parts") == traces(tmp_path / "whole")


def test_a_finished_run_says_so_and_stays(
    finished: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*")}
    assert app.dispatch(["resume", str(finished)]) == 0
    assert train(finished, words) == 0
    assert capsys.readouterr().out.count("is done (iterations=4)") == 2
    assert {p: p.stat().st_mtime_ns for p in finished.rglob("*")} == before


def test_another_command_on_its_folder_is_refused_with_what_differs(
    finished: Path, words: list[str]
) -> None:
    with pytest.raises(PlanError) as refused:
        train(finished, words, "seed=7", "optimizer.lr=0.5")
    seed, rate = refused.value.problems
    assert (seed.key, seed.fix) == ("seed", "seed=0")
    assert "began with 0, and now it is 7" in seed.message
    assert rate.key == "optimizer.lr"
    assert "--force goes on all the same" in rate.message


def test_it_can_be_forced_and_what_it_began_with_is_kept(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", words, "iterations=1") == 0
    former = (tmp_path / "run" / "config.yaml").read_text()
    assert train(tmp_path / "run", words, "iterations=2", "--force") == 0
    assert "resuming after iteration 1 of 2" in capsys.readouterr().out
    assert (tmp_path / "run" / "config_1.yaml").read_text() == former
    assert (tmp_path / "run" / "checkpoints" / "step_000002").is_dir()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--until", "0"], "--until: is 0; allowed are 1 or more"),
        (["iterations=3"], "iterations: is 3, and the run has finished 4"),
        (["iterations=x"], "iterations: is x; allowed is a whole number >= 1"),
    ],
)
def test_an_iteration_that_cannot_be_is_refused(
    finished: Path, refused: Callable[..., str], flags: list[str], said: str
) -> None:
    assert said in refused("resume", str(finished), *flags)


def test_a_learning_rate_that_decays_needs_force(
    finished: Path, refused: Callable[..., str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    frozen = yaml.safe_load((run / "config.yaml").read_text())
    frozen["learning_rate"]["final_scale"] = 0.1
    (run / "config.yaml").write_text(yaml.safe_dump(frozen))
    said = refused("resume", str(run), "--until", "9")
    assert "decays until then; --force resumes with the rates of a run of 9" in said
    assert f"rlfactory resume {run} --until 9 --force" in said


def test_more_iterations_by_the_same_command_are_answered_with_the_command(
    finished: Path, words: list[str]
) -> None:
    with pytest.raises(PlanError) as refused:
        train(finished, words, "iterations=9")
    (problem,) = refused.value.problems
    assert problem.fix == f"rlfactory resume {finished} --until 9"


def test_a_run_that_failed_before_its_first_checkpoint_is_replaced(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.py"
    file.write_text("def wrong(prompts, completions):\n    return 'no list'\n")
    (tmp_path / "run").mkdir()
    wrong = f"reward.function={file}:wrong"
    assert train(tmp_path / "run", words, wrong, "iterations=1") == 1
    (tmp_path / "run" / "notes.txt").write_text("mine")
    assert app.dispatch(["check", f"run_dir={tmp_path / 'run'}", *words, "iterations=1"]) == 0
    assert train(tmp_path / "run", words, "iterations=1") == 0
    shown = capsys.readouterr().out
    assert "the run ended before its first checkpoint, and is replaced" in shown
    folder = RunFolder(tmp_path / "run")
    assert folder.read_status() == "done"
    assert "must return a list" not in folder.log.read_text()
    assert "letters" in folder.config.read_text()
    assert not [*folder.path.glob("config_*")]
    assert (folder.path / "notes.txt").read_text() == "mine", "what it did not write stays"


def test_a_run_that_learned_something_is_not_replaced(words: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(run, words, "iterations=1") == 0
    RunFolder(run).set_status("failed")
    with pytest.raises(PlanError, match="seed: the run in .* began with 0"):
        train(run, words, "iterations=1", "seed=7")


def test_what_is_no_run_can_not_be_resumed(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "is no run folder" in refused("resume", str(tmp_path))
    assert "is no run folder" in refused("resume", str(tmp_path / "nowhere"))


@pytest.mark.slow
def test_a_run_that_somebody_works_on_is_refused_at_once(
    finished: Path, words: list[str], refused: Callable[..., str]
) -> None:
    before = (finished / "config.yaml").read_text()
    with lock.owned(finished):
        (finished / "STATUS").write_text("running\n")
        for typed in (
            ["resume", str(finished)],
            ["resume", str(finished), "--take-over"],
            [f"run_dir={finished}", *words],
            ["check", f"run_dir={finished}", *words],
            [f"run_dir={finished}", *words, "seed=7", "--force"],
        ):
            assert f"in use by process {os.getpid()} on" in refused(*typed)
    assert (finished / "config.yaml").read_text() == before
    (finished / "OWNER").write_text(json.dumps(lock.this_process() | {"host": "elsewhere"}))
    assert "add --take-over" in refused("resume", str(finished))
    (finished / "STATUS").write_text("done\n")
    for typed in (["resume", str(finished)], [f"run_dir={finished}", *words]):
        assert app.dispatch([*typed, "--take-over"]) == 0
    (finished / "OWNER").unlink()


@pytest.mark.slow
def test_a_run_is_taken_over_with_a_line_in_the_log(words: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(run, words, "iterations=1") == 0
    (run / "OWNER").write_text(json.dumps(lock.this_process() | {"host": "elsewhere"}))
    (run / "STATUS").write_text("running\n")
    assert train(run, words, "iterations=1", "--take-over") == 0
    assert "taken over from process" in (run / "log.txt").read_text()
    assert not (run / "OWNER").exists()
    assert RunFolder(run).read_status() == "done"


def test_a_disk_that_is_full_at_the_beginning_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_from_words(f"run_dir={tmp_path / 'run'}")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would be cut as well, and kept
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(PlanError, match=rf"{plan.run_dir} cannot be written \(File too large"):
            create_run(plan, "rlfactory")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    create_run(plan, "rlfactory")  # once there is room


def test_no_folder_is_made_for_prompts_that_are_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_from_words("prompts=hpdv2", "reward=compressibility", "run_dir=run")
    assert any("hf download" in row for row in plan.derived.values())
    with pytest.raises(PlanError, match="hf download ymhao/HPDv2"):
        create_run(plan, "rlfactory")
    assert not (tmp_path / "run").exists()
