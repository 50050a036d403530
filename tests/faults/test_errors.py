"""Errors that are nobody's kill: the run ends, says why, and goes on where it was."""

from functools import partial
from pathlib import Path

import pytest
from faulty.accidents import full_disk
from faulty.attempt import start_attempt
from faulty.points import ended_with, left_by
from faulty.runs import ALGORITHMS, words
from faulty.traces import compared, traces

from rlfactory.run.checkpoint.find import newest
from rlfactory.run.folder import RunFolder

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
UNRELIABLE = """
from pathlib import Path

calls = []


def vowels(prompts, completions):
    calls.append(1)
    if len(calls) == 4 and not Path(__file__).with_name("mended").exists():
        raise OSError("the service is away")
    return [sum(letter in "aeiou" for letter in text) for text in completions]
"""


def test_a_reward_that_raises_ends_the_run_which_then_goes_on(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(UNRELIABLE)
    reward = ("reward=function", f"reward.function={tmp_path / 'judge.py'}:vowels")
    given = words(*ALGORITHMS["ppo"], *reward)
    said = ended_with(1, [f"run_dir={tmp_path / 'run'}", *given], tmp_path)
    assert "of the samples got no score from reward vowels" in said
    assert RunFolder(tmp_path / "run").read_status() == "failed"
    (tmp_path / "mended").touch()
    ended_with(0, ["resume", str(tmp_path / "run")], tmp_path)
    assert compared(left_by(given, tmp_path / "whole"), traces(tmp_path / "run")) == []


def test_an_error_of_scoring_ends_the_run_which_then_goes_on(tmp_path: Path) -> None:
    given = ALGORITHMS["nft"]
    ended_with(1, [f"run_dir={tmp_path / 'run'}", *given], tmp_path, "scoring:raise:3")
    assert RunFolder(tmp_path / "run").read_status() == "failed"
    ended_with(0, ["resume", str(tmp_path / "run")], tmp_path)
    assert compared(left_by(given, tmp_path / "whole"), traces(tmp_path / "run")) == []


@pytest.mark.parametrize("background", ["true", pytest.param("false", marks=pytest.mark.whole)])
def test_a_full_disk_leaves_the_last_good_checkpoint(background: str, tmp_path: Path) -> None:
    given = words(*ALGORITHMS["grpo"], f"checkpoint.background={background}")
    typed = [f"run_dir={tmp_path / 'run'}", *given]
    attempt = start_attempt(typed, tmp_path / "logs", before=partial(full_disk, 3))
    attempt.wait()
    assert attempt.code == 1
    assert "No space left on device" in attempt.said.read_text()
    folder = RunFolder(tmp_path / "run")
    assert folder.read_status() == "failed"
    assert newest(folder.checkpoints) == folder.checkpoints / "step_000001"
    ended_with(0, ["resume", str(tmp_path / "run")], tmp_path)
    assert compared(left_by(given, tmp_path / "whole"), traces(tmp_path / "run")) == []
