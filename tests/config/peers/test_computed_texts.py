"""TRL's losses, warm-ups and rewards in the words of the command."""

from typing import Any

import pytest

from rlfactory.config.peers import computed_texts
from rlfactory.config.peers.importer import Translation


@pytest.mark.parametrize(
    ("function", "value", "left", "words"),
    [
        ("loss_of_pairs", "ipo", {}, ["algo.loss_type=ipo"]),
        ("loss_of_pairs", ["sigmoid", "sft"], {"loss_weights": [1.0, 0.5]},
         ["algo.loss_type=sigmoid", "algo.sft_weight=0.5"]),
        ("loss_of_pairs", "nca_pair", {}, []),
        ("rewards_of_texts", ["length", "mine.py:f"], {"reward_weights": [1.0, 2.0]},
         ["reward=[length,mine.py:f]", "reward.weights=[1,2]"]),
        ("rewards_of_texts", "Skywork/reward", {},
         ["reward=reward_model", "reward.path=Skywork/reward"]),
        ("critic", None, {"reward_model_path": "sentiment", "learning_rate": 3e-6},
         ["model.value_head=linear", "model.value_detach=false", "model.value_lr=3e-06"]),
    ],
)  # fmt: skip
def test_words_of_options(
    function: str, value: Any, left: dict[str, Any], words: list[str]
) -> None:
    made = Translation("TRL", left=left)
    getattr(computed_texts, function)(value, made)
    assert made.command() == words


def test_a_warm_up_below_one_is_a_share() -> None:
    made = Translation("TRL", left={"warmup_steps": 0.1})
    computed_texts.warm_up(None, made)
    assert made.left == {"warmup_ratio": 0.1}
