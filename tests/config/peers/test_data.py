"""Prompts and rewards in the words of the command."""

from pathlib import Path

from rlfactory.config.peers.data import combined, prompts_of


def test_rewards_and_prompts(tmp_path: Path) -> None:
    assert combined({"hps": 1.0}) == ["reward=hps"]
    assert combined({"hps": 1.0, "ocr": 2.0}) == [
        "reward=combine", "reward.of=[hps,ocr]", "reward.weights.ocr=2"
    ]  # fmt: skip
    assert prompts_of("dataset/ocr", tmp_path) == ["prompts=signs"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.txt").touch()
    (tmp_path / "mine" / "test.txt").touch()
    assert prompts_of("mine", tmp_path)[1:] == [
        "prompts.path=mine/train.txt", "prompts.eval_path=mine/test.txt"
    ]  # fmt: skip
