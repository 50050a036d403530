"""Prompts and rewards in the words of the command."""

from collections.abc import Callable
from pathlib import Path

from rlfactory.config.peers.computed import combined, prompts_of_folder
from rlfactory.config.peers.importer import Translation


def words(of: Callable[[Translation], None]) -> list[str]:
    made = Translation("Their library")
    of(made)
    return made.command()


def test_rewards_and_prompts(tmp_path: Path) -> None:
    assert words(lambda made: combined({"hps": 1.0}, made)) == ["reward=hps"]
    assert words(lambda made: combined({"hps": 1.0, "ocr": 2.0}, made)) == [
        "reward=combine", "reward.of=[hps,ocr]", "reward.weights.ocr=2"
    ]  # fmt: skip
    found = words(lambda made: prompts_of_folder("dataset/ocr", made, tmp_path))
    assert found == ["prompts=signs"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.txt").touch()
    (tmp_path / "mine" / "test.txt").touch()
    found = words(lambda made: prompts_of_folder("mine", made, tmp_path))
    assert found[1:] == ["prompts.path=mine/train.txt", "prompts.eval_path=mine/test.txt"]
