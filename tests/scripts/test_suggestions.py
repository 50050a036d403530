"""Each fix that a refused command suggests removes the problem that it is suggested for."""

import contextlib
import importlib
import io
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rlfactory.cli import app
from rlfactory.config.problems import PlanError, Problem, fix_command

SCRIPTS = str(Path(__file__).parents[2] / "scripts")
sys.path.insert(0, SCRIPTS)
configs = importlib.import_module("faulty.configs")
sys.path.remove(SCRIPTS)

COUNT = 60
TRAINS = "="
"""In the first word of a command that would train; those are checked instead."""
TYPED = {"check", "list", "explain", "--help", "--version"}
"""Subcommands that change nothing and end; the fixes of others are not typed."""
CASES = [
    "algo=ppo model=sd35",
    "model=tiny_gpt2 algo=ddpo",
    "model=tiny_gpt2 algo=awm",
    "model=tiny_sd algo=grpo_token",
    "model=tiny_sd model.path=zoo:none",
    "model=tiny_flux model.path=nowhere",
    "model=tiny_gpt2 model.value_path=./no",
    "reward.of=shapes reward=combine",
    "algo=ddpo_sf updates_per_iteration=2 epochs=2",
    "branches=2 branch_at=step",
    "schedule.kind=unifrom",
    "trust=[mine] reward._target_=json.JSONDecoder",
    "model=tiny_sd algo=awm schedule._target_=joblib.load",
]


def problems_of(words: Sequence[str]) -> list[Problem]:
    """What `rlfactory WORDS` refuses."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            assert app.dispatch(words) == 0
    except PlanError as error:
        return error.problems
    return []


def to_check(words: Sequence[str]) -> list[str] | None:
    """A command that plans but does not train; None for one that is not typed here."""
    if not words or TRAINS in words[0] or words[0].startswith("~"):
        words = ["check", *words]
    return [*words] if words[0] in TYPED and not {"-m", "--multirun"} & {*words} else None


def require_fixes(words: Sequence[str]) -> None:
    for problem in problems_of(words):
        command = fix_command(problem, words)
        fixed = to_check(shlex.split(command)[1:]) if command else None
        if fixed is None:
            continue
        left = [(p.key, p.message) for p in problems_of(fixed)]
        assert (problem.key, problem.message) not in left, f"{' '.join(words)}: {command}"


@pytest.mark.parametrize("typed", CASES)
def test_a_suggestion_works(typed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["rlfactory"])
    words = ["check", *typed.split(" ")]
    assert any(problem.fix for problem in problems_of(words))
    require_fixes(words)


@pytest.mark.slow
def test_the_suggestions_for_generated_commands_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["rlfactory"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    for number, case in enumerate(configs.make_cases(COUNT, seed=3)):
        (here := tmp_path / str(number)).mkdir()
        monkeypatch.chdir(here)
        for name, content in case.files.items():
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            (here / name).write_bytes(content)
        if (words := to_check(case.words)) is not None:
            require_fixes(words)


def test_a_key_of_other_algorithms_names_them() -> None:
    (problem,) = problems_of(["check", "algo.clip_range=1"])
    assert "clip_range is a key of algo=awm, branch_grpo, cispo, cppo, dapo," in problem.message


@pytest.mark.parametrize(
    ("typed", "meant", "option"),
    [
        ("regularizer.coefficient.value", "coefficient.value", "gardo"),
        ("regularizer.value", "regularizer.coefficient.value", "gardo"),
        ("algo.clip_range", "clip_range", "awm"),
        ("advantage.min_count", "min_count", "tracker"),
    ],
)
def test_a_key_of_other_options_is_explained_with_one_of_them(
    typed: str, meant: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (problem,) = problems_of(["explain", typed])
    group = typed.partition(".")[0]
    key = meant if meant.startswith(group) else f"{group}.{meant}"
    assert f"{meant} is a key of {group}=" in problem.message
    assert problem.fix == f"rlfactory explain {key} {group}={option}"
    assert app.dispatch(shlex.split(problem.fix)[1:]) == 0
    assert capsys.readouterr().out.startswith(f"{key} = ")


@pytest.mark.slow
def test_a_model_of_the_hub_that_is_not_there_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    problem, *of_reward = problems_of(["check", "model=sd35", "model.path=nobody/nothing"])
    assert (problem.key, problem.fix) == ("model.path", "")
    assert all(other.key.startswith("reward.") for other in of_reward)
