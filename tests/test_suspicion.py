"""From tensors to prompts: a micro-batch in the middle of an update, of pictures and of texts."""

from collections.abc import Callable
from typing import Any

import torch

from rlfactory.algo.base import Loss
from rlfactory.batch import Batch, Outputs, TokenBatch
from rlfactory.rollout import Condition, Rollout, Tokens
from rlfactory.suspicion import Place, of_gradient, of_micro_batch

SAMPLES = Rollout(
    prompts=["a", "b", "c", "d"],
    metadata=[{}] * 4,
    groups=torch.arange(4),
    index=torch.tensor([10, 11, 12, 13]),
)
PLACE = Place(iteration=4, update=1, micro_batch=1, offset=2)
LOSS = Loss(torch.tensor(torch.nan), Outputs(torch.zeros(2, 1)), {})
METRICS = {"loss/policy": torch.tensor([0.5, torch.nan])}


def test_items_of_pictures_know_their_sample() -> None:
    zeros = torch.zeros(2)
    samples = torch.tensor([1, 3])
    chunk = Batch(zeros, zeros, zeros, samples, Condition({"c": zeros}), zeros)
    found = of_micro_batch(
        {"log-ratios": torch.tensor([False, True])}, chunk, LOSS, METRICS, SAMPLES, PLACE
    )
    assert (found.iteration, found.update, found.micro_batch) == (5, 2, 2)
    assert found.prompts == ["b", "d"]
    assert found.samples == [11, 13]
    assert found.rows == {"log-ratios": [1], "loss/policy": [1]}
    assert found.suspects == ["d"]
    assert str(found.facts["loss"]) == str(found.facts["loss/policy"]) == "nan"
    assert {"batch/condition/tensors/c", "metrics/loss/policy", "outputs/prediction"} <= {
        *found.tensors
    }


def test_texts_follow_one_another() -> None:
    ids, mask = torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 1, dtype=torch.bool)
    zeros = torch.zeros(2, 1)
    tokens = Tokens(ids, mask, ids, mask, mask[:, 0], zeros, zeros)
    chunk = TokenBatch(tokens, zeros, zeros)
    found = of_micro_batch({}, chunk, LOSS, METRICS, SAMPLES, PLACE)
    assert found.prompts == ["c", "d"]
    assert found.samples == [12, 13]
    assert found.suspects == ["d"]
    assert "batch/tokens/response" in found.tensors


def test_a_gradient_is_of_all_of_an_update(loop: Callable[..., Any]) -> None:
    trainer = loop("algo=grpo")
    rollout, _ = trainer.score(trainer.sample(0))
    items = trainer.parts.algo.items(rollout, trainer.parts.model, seed=0, iteration=0)
    found = of_gradient(float("inf"), items, rollout, PLACE)
    assert found.micro_batch is None
    assert found.rows == {"the gradient's norm": []}
    assert found.samples == [*range(12)]
    assert found.suspects == [*dict.fromkeys(rollout.prompts)]
    assert found.facts == {"norm": float("inf")}
    assert found.tensors["batch/x"] is items.x
