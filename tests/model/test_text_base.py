"""The limit on logits held at once changes memory, and not the gradients."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rlfactory.algo.ppo import PPO
from rlfactory.batch import TokenBatch
from rlfactory.dynamics.token import Token
from rlfactory.model import text_base
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.text_base import response_log_prob
from rlfactory.regularizer.coefficient import Fixed
from rlfactory.regularizer.kl_token import KLToken
from rlfactory.rollout import Rollout
from rlfactory.train.sampling.text_sampler import TextSampler

CPU = torch.device("cpu")
LENGTH, COUNT = 6, 5
TOKEN = Token(length=LENGTH)
Set = Any


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    model = CausalLM(CPU, path=str(gpt2_folder), value_start="orthogonal")
    model.weights.add("reference")
    generator = torch.Generator().manual_seed(5)
    for name, parameter in model.weights.parameters.items():
        if not name.startswith("critic"):
            parameter.data.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture
def room(model: CausalLM, monkeypatch: pytest.MonkeyPatch) -> Set:
    """Gives responses of LENGTH room for so many rows of logits."""

    def give(rows: float) -> None:
        monkeypatch.setitem(text_base.MAX_LOGITS, "cpu", int(rows * LENGTH * model.vocabulary))

    return give


def batch_of(model: CausalLM) -> TokenBatch:
    ids, mask = model.encode(["This", "A film", "I", "You", "We"])
    uniform = torch.rand(COUNT, LENGTH, generator=torch.Generator().manual_seed(3))
    tokens = model.rollout(ids, mask, TOKEN, uniform)
    # of unequal lengths, so that a mean of means would be another one
    tokens = replace(tokens, mask=torch.arange(LENGTH) < torch.arange(2, 2 + COUNT)[:, None])
    generator = torch.Generator().manual_seed(4)
    worth = torch.randn(COUNT, LENGTH, generator=generator)
    rollout = Rollout(
        prompts=[""] * COUNT,
        metadata=[{}] * COUNT,
        groups=torch.arange(COUNT),
        index=torch.arange(COUNT),
        tokens=tokens,
        advantage=worth,
        returns=worth.flip(0),
    )
    return PPO(TOKEN).training_items(rollout, model, seed=0, iteration=0)


def gradient(model: CausalLM, batch: TokenBatch, estimator: Set = "exact") -> Tensor:
    """Of an update, as the learner adds it up."""
    algo = PPO(TOKEN, entropy_weight=0.1)
    penalty = KLToken(TOKEN, coefficient=Fixed(value=0.5), estimator=estimator)
    if estimator != "exact":
        found = response_log_prob(model, "reference", batch.tokens, TOKEN, COUNT)
        batch = replace(batch, tokens=replace(batch.tokens, reference_log_prob=found))
    for chunk in batch.split(4):
        loss = algo.loss(model, chunk)
        total = loss.value + penalty.penalty(model, chunk, loss.outputs)[0]
        (total * chunk.weight / batch.weight).backward()  # type: ignore[no-untyped-call]
    grads = [p.grad for p in model.weights.parameters.values() if p.grad is not None]
    flat = torch.cat([g.flatten().clone() for g in grads])
    for parameter in model.weights.parameters.values():
        parameter.grad = None
    return flat


@pytest.mark.parametrize("estimator", ["exact", "k3"])
@pytest.mark.parametrize("rows", [3, 1, 0.1])
def test_gradients_in_chunks_are_those_of_the_whole(
    model: CausalLM, room: Set, rows: float, estimator: Set
) -> None:
    batch = batch_of(model)
    whole = gradient(model, batch, estimator)
    room(rows)
    limited = replace(batch, max_rows=model.rows_at_once(LENGTH, COUNT))
    assert [len(part) for part in limited.split(4)] == ([3, 2] if rows == 3 else [1] * COUNT)
    # without a limit on rows, logits are computed in chunks
    for found in (batch, limited):
        torch.testing.assert_close(gradient(model, found, estimator), whole, atol=1e-6, rtol=1e-4)


class Largest(TorchDispatchMode):
    """The most logits that a tensor held."""

    def __init__(self, model: CausalLM) -> None:
        super().__init__()
        self.width = model.network.config.hidden_size
        self.vocabulary, self.found = model.vocabulary, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            # neither the projection's weights nor their gradient
            wide = isinstance(leaf, Tensor) and leaf.ndim == 2 and leaf.shape[1] == self.vocabulary
            if wide and leaf.shape[0] not in (self.vocabulary, self.width):
                self.found = max(self.found, leaf.numel())
        return made


@pytest.mark.parametrize("rows", [1, 2])
def test_no_more_logits_are_held_than_there_is_room_for(
    model: CausalLM, room: Set, rows: int
) -> None:
    batch = batch_of(model)
    room(rows)
    most = rows * LENGTH * model.vocabulary
    with Largest(model) as seen:
        gradient(model, batch)
        assert 0 < seen.found <= most
        response_log_prob(model, "reference", batch.tokens, TOKEN, COUNT)
        kl = KLToken(TOKEN, coefficient=Fixed(value=0.5), micro_batch=COUNT)
        kl._rollout_divergence(model, batch.tokens)
        assert seen.found <= most


def test_what_is_drawn_together_has_room_for_a_token_each(model: CausalLM, room: Set) -> None:
    drawn: list[int] = []
    sampler = TextSampler(model, dynamics=TOKEN, batch=5, advance=drawn.append)
    prompts = ["This", "A film", "I", "You", "We"]
    usual = sampler.draw(prompts, seed=0, stream="evaluation").texts
    assert drawn == [5]
    room(3 / LENGTH)
    assert sampler.draw(prompts, seed=0, stream="evaluation").texts == usual
    assert drawn == [5, 3, 2]


def test_a_response_that_has_no_room_goes_alone(model: CausalLM) -> None:
    assert model.rows_at_once(10**9, 8) == 1
    assert model.rows_at_once(1, 8) == 8
