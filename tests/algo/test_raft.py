"""Rejection sampling: the loss is that of supervised fine-tuning on the best of each group."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlfactory.algo.raft import RAFT
from rlfactory.algo.sft import SFT
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.prompts.base import Prompt
from rlfactory.rollout import Rollout
from rlfactory.train.sampling.given import GivenSampler

TEXTS = [" dull.", " good film", " bad", " ok", " so so", " fine", " long", " a film"]
SCORES = [0.1, 0.7, 0.7, 0.5, 0.5, 0.2, 0.1, 0.9]
"""Of four groups of two."""


def completed(model: CausalLM, texts: list[str]) -> Rollout:
    sampler = GivenSampler(
        model,
        completion=SFT().completion,
        dynamics=Token(length=12),
        batch=8,
        advance=lambda count: None,
    )
    prompts = [Prompt("The film:", {"completion": text}) for text in texts]
    return sampler.rollout(prompts, torch.arange(len(texts)), seed=0, iteration=0)


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    return CausalLM(torch.device("cpu"), path=str(gpt2_folder))


def test_the_best_of_each_group_is_learned_as_data_are(model: CausalLM) -> None:
    drawn = completed(model, TEXTS)
    groups = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    drawn = replace(drawn, groups=groups, rewards={"any": torch.tensor(SCORES)})
    kept = RAFT().compute_advantages(drawn, "any")
    assert kept.texts == [" good film", " bad", " so so", " a film"]
    data = SFT().compute_advantages(completed(model, kept.texts), "any")
    losses = [
        algo.loss(model, algo.training_items(rollout, model, seed=0, iteration=0)).value
        for algo, rollout in ((RAFT(), kept), (SFT(), data))
    ]
    torch.testing.assert_close(*losses)


def test_groups_of_equal_scores_teach_nothing(model: CausalLM) -> None:
    drawn = completed(model, TEXTS[:4])
    scores = torch.tensor([1.0, 1.0, 0.0, 0.5])
    drawn = replace(drawn, groups=torch.tensor([0, 0, 1, 1]), rewards={"any": scores})
    assert RAFT().compute_advantages(drawn, "any").texts == [" ok"]


def test_a_group_of_one_is_no_choice() -> None:
    with pytest.raises(PlanError, match="group_size: is 1"):
        plan_from_words("model=tiny_gpt2", "algo=raft", "group_size=1")
    planned = plan_from_words("model=tiny_gpt2", "algo=raft", "micro_batch=4")
    assert "8 items an update / 4 = 2 accumulated" in planned.table()
