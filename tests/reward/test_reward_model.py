"""A classifier with one label as a reward."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rlfactory.reward.base import RewardError, Samples
from rlfactory.reward.reward_model import RewardModel

CPU = torch.device("cpu")


def test_the_score_is_the_networks_of_prompt_and_completion(
    classifier_folder: Callable[..., Path],
) -> None:
    folder = str(classifier_folder("score"))
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    ids = AutoTokenizer.from_pretrained(folder)("this film is good", return_tensors="pt").input_ids
    asked = Samples(["this film"], [{}], torch.arange(1), texts=[" is good"])
    found = RewardModel(CPU, path=folder).score(asked)["reward_model"]
    torch.testing.assert_close(found, network(ids).logits[0].detach())


def test_a_classifier_of_several_labels_is_an_error(
    classifier_folder: Callable[..., Path],
) -> None:
    folder = str(classifier_folder("a", "b"))
    with pytest.raises(RewardError, match=r"2 labels \(a, b\)"):
        RewardModel(CPU, path=folder)
