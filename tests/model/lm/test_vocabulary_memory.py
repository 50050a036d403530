"""Learning's memory does not grow with the vocabulary: the largest tensor, and what is kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_language_models import save_language_model
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rlfactory.algo.ppo import PPO
from rlfactory.algo.sft import SFT
from rlfactory.batch import TokenBatch
from rlfactory.dynamics.token import Token
from rlfactory.model import text_base
from rlfactory.model.causal_lm import CausalLM
from rlfactory.regularizer.coefficient import Fixed
from rlfactory.regularizer.kl_token import KLToken

COUNT, LENGTH = 6, 20
TOKEN = Token(length=LENGTH)
VOCABULARIES = (1024, 16384)
LIMIT = 4 * 16384
"""Logits that are held at once: four tokens of the larger vocabulary."""


class Seen(TorchDispatchMode):
    """The elements of the largest tensor that was made, weights and their gradients aside."""

    def __init__(self, model: CausalLM) -> None:
        super().__init__()
        self.weights = {p.numel() for p in model.network.parameters()}
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor) and leaf.numel() not in self.weights:
                self.largest = max(self.largest, leaf.numel())
        return made


def used(model: CausalLM, algo: str) -> tuple[int, int]:
    """The largest tensor of an update, and the elements kept for its backward pass."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, (COUNT, LENGTH), generator=generator)
    real, ended = torch.ones_like(ids, dtype=torch.bool), torch.ones(COUNT, dtype=torch.bool)
    prompt, prompt_mask = model.encode(["A film"] * COUNT)
    zeros = torch.zeros(COUNT, LENGTH)
    tokens = text_base.Tokens(prompt, prompt_mask, ids, real, ended, zeros, zeros).measured()
    batch = TokenBatch(tokens, torch.ones(COUNT, LENGTH), zeros)
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    weights = {p.data_ptr() for p in model.network.parameters()}
    with Seen(model) as seen, saved_tensors_hooks(note, lambda tensor: tensor):
        learner = SFT() if algo == "sft" else PPO(TOKEN, entropy_weight=0.1)
        loss = learner.loss(model, batch)
        total = loss.value
        if algo == "ppo":
            penalty = KLToken(TOKEN, coefficient=Fixed(value=0.5), estimator="exact")
            total = total + penalty.penalty(model, replace(batch), loss.outputs)[0]
        total.backward()  # type: ignore[no-untyped-call]
    return seen.largest, sum(n for pointer, n in kept.items() if pointer not in weights)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "sft"])
def test_memory_is_that_of_a_small_vocabulary(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(text_base.MAX_LOGITS, "cpu", LIMIT)
    found = []
    for size in VOCABULARIES:
        folder = save_language_model(tmp_path / str(size), "qwen3", size)
        model = CausalLM(torch.device("cpu"), path=str(folder))
        model.weights.add("reference")
        assert COUNT * LENGTH * size > LIMIT, "else there is nothing to see"
        found.append(used(model, algo))
    (small, kept), (large, kept_of_large) = found
    assert large <= LIMIT
    assert small <= LIMIT
    assert kept_of_large <= 1.05 * kept
