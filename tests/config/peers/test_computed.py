"""Prompts and rewards in the words of the command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlfactory.config.peers import computed
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


@pytest.mark.parametrize(
    ("function", "value", "left", "words"),
    [
        ("loss_of_pairs", "ipo", {}, ["algo.loss_type=ipo"]),
        ("loss_of_pairs", ["sigmoid", "sft"], {"loss_weights": [1.0, 0.5]},
         ["algo.loss_type=sigmoid", "algo.sft_weight=0.5"]),
        ("loss_of_pairs", "nca_pair", {}, []),
        ("rewards_of_texts", ["length", "mine.py:f"], {"reward_weights": [1.0, 2.0]},
         ["reward=[length,mine.py:f]", "reward.missing=skip", "reward.weights=[1,2]"]),
        ("rewards_of_texts", "Skywork/reward", {},
         ["reward=reward_model", "reward.path=Skywork/reward"]),
    ],
)  # fmt: skip
def test_words_of_options(
    function: str, value: Any, left: dict[str, Any], words: list[str]
) -> None:
    made = Translation("TRL", left=left)
    getattr(computed, function)(value, made)
    assert made.command() == words
