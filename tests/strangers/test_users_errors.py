"""Exceptions in users' own code: their line first, ten lines at most, and the log that has all."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from cases import CASES, python_cases

import rlfactory as rl
from rlfactory.algo.ppo import PPO
from rlfactory.train.listeners import Listener
from rlfactory.utils.errors import UserCodeError, UserError

TINY = [
    *("model=tiny_gpt2", "iterations=1", "prompts_per_iteration=2", "group_size=2"),
    *("updates_per_iteration=1", "evaluation.prompts=2", "evaluation.grid=2", "hardware=cpu"),
    *("evaluation.preview_every=0", "dynamics.length=4"),
]
SCRIPT = """
import rlfactory as rl

def wrong(completions, **columns):
    return [text[1000] for text in completions]

rl.train({words}, reward=wrong, run_dir="run")
"""


def told(shown: str, says: str, log: Path) -> None:
    """An error's lines: the user's first, ten at most, and a log that exists."""
    lines = shown[shown.index("error: ") :].strip().splitlines()
    assert "Traceback" not in shown
    assert len(lines) <= 10
    for part in says.splitlines():
        assert part in "\n".join(lines[:3]), shown
    assert str(log) in shown
    assert "Traceback (most recent call last)" in log.read_text()


@pytest.mark.parametrize("path", python_cases("users_errors"))
def test_of_a_reward_in_the_command(path, tmp_path, here):
    case = runpy.run_path(str(path)) if "importable" not in path.stem else {"SAYS": "json.loads"}
    (tmp_path / "rewards.py").write_text(path.read_text())
    done = here(*TINY, "reward=rewards.py:right", f"run_dir={tmp_path / 'run'}")
    assert done.returncode == 1
    told(done.stderr, case["SAYS"], tmp_path / "run/log.txt")


@pytest.mark.slow
def test_of_a_reward_in_a_process(tmp_path, here):
    (tmp_path / "rewards.py").write_text((CASES / "users_errors/reward_divides.py").read_text())
    words = ["reward=rewards.py:right", f"run_dir={tmp_path / 'run'}", "scoring.background=process"]
    done = here(*TINY, *words)
    assert done.returncode == 1
    told(
        done.stderr,
        "return [1 / 0 for _ in completions]\nZeroDivisionError",
        tmp_path / "run/log.txt",
    )


class Sums(Listener):
    """A listener with a misspelt key."""

    def after_iteration(self, iteration):
        print(iteration.metrics["reward/nothing"])


class Forgets(PPO):
    """An algorithm with a name that there is not."""

    def loss(self, model, batch):
        return super().loss(model, batch.nothing)


def count(iteration):
    raise OSError(f"{iteration.done}: no disk")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "says", "cause"),
    [
        ({"listeners": [Sums()]}, 'iteration.metrics["reward/nothing"]', KeyError),
        ({"listeners": count}, 'raise OSError(f"{iteration.done}: no disk")', OSError),
        ({"algo": Forgets}, "batch.nothing", AttributeError),
    ],
)
def test_of_other_code_in_python(given, says, cause, tmp_path):
    with pytest.raises(UserCodeError) as raised:
        rl.train(*TINY, **given, run_dir=tmp_path / "run")
    first, second, last = str(raised.value).splitlines()
    assert f"{Path(__file__).name}, line " in first
    assert says in first
    assert second.startswith(cause.__name__)
    assert last == f"The traceback is in {tmp_path / 'run/log.txt'}"
    assert isinstance(raised.value.__cause__, cause)
    assert rl.load_run(tmp_path / "run").status == "failed"


def test_of_a_reward_in_python(tmp_path):
    def wrong(completions, **columns):
        return [text[1000] for text in completions]

    with pytest.raises(UserError) as raised:
        rl.train(*TINY, reward=wrong, run_dir=tmp_path / "run")
    assert isinstance(raised.value.__cause__, IndexError)
    assert "return [text[1000] for text in completions]" in str(raised.value).splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize("way", [pytest.param("script", marks=pytest.mark.whole), "notebook"])
def test_a_script_and_a_notebook_show_ten_lines(way, tmp_path):
    code = SCRIPT.format(words=", ".join(map(repr, TINY)))
    (tmp_path / "mine.py").write_text(code)
    words = ["mine.py"] if way == "script" else ["-m", "IPython", "--colors=NoColor", "-c", code]
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    shown = done.stderr if way == "script" else done.stdout
    lines = shown[shown.index("TrainingError: ") :].strip().splitlines()
    assert "return [text[1000] for text in completions]" in lines[0] or way == "notebook"
    assert any(line.startswith("IndexError: string index out of range") for line in lines)
    assert len(lines) <= 10
    assert "Traceback (most" not in shown
