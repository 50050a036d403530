"""Masks are those that transformers would make; layers are recomputed in learning only."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, JambaConfig, LlamaConfig, MistralConfig, Qwen2Config
from transformers.masking_utils import create_causal_mask

from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.attention import attention_mask, masks_by_layers
from rlfactory.model.memory import Memory

CPU = torch.device("cpu")
MASK = torch.tensor([[False, False, True, True, True], [True, True, True, True, False]])


def test_the_mask_is_transformers_own() -> None:
    config = GPT2Config(attn_implementation="sdpa")
    theirs = create_causal_mask(
        config, torch.zeros(2, 5, 4), attention_mask=MASK, past_key_values=None
    )
    assert torch.equal(attention_mask(MASK, 5, by_layers=False), theirs)


def test_new_tokens_see_all_before_them() -> None:
    both = attention_mask(MASK, 2, by_layers=False)
    assert torch.equal(both, attention_mask(MASK, 5, by_layers=False)[:, :, 3:])
    assert torch.equal(attention_mask(MASK, 1, by_layers=False), MASK[:, None, None])
    assert attention_mask(MASK, 5, by_layers=True) is MASK


def test_masks_that_transformers_makes_are_known() -> None:
    own: dict[str, Any] = {"attn_implementation": "sdpa"}
    assert not masks_by_layers(GPT2Config(**own))
    assert not masks_by_layers(MistralConfig(sliding_window=None, **own))
    assert not masks_by_layers(Qwen2Config(use_sliding_window=False, **own))
    assert masks_by_layers(MistralConfig(sliding_window=16, **own))
    assert masks_by_layers(Qwen2Config(use_sliding_window=True, max_window_layers=1, **own))
    assert masks_by_layers(GPT2Config(attn_implementation="eager")), "it adds masks"
    assert masks_by_layers(LlamaConfig(attn_implementation="flash_attention_2")), "lengths"
    assert masks_by_layers(JambaConfig(**own)), "it has recurrent states"


@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_recomputed_layers_have_the_same_gradients_and_keep_less(
    gpt2_folder: Path, finetune: str
) -> None:
    found = []
    for checkpointing in (False, True):
        memory = Memory(gradient_checkpointing=checkpointing)
        model = CausalLM(CPU, 0, None, memory, path=str(gpt2_folder), finetune=finetune)  # type: ignore[arg-type]
        ids, mask = model.encode(["This", "A film"])
        uniform = torch.rand(2, 6, generator=torch.Generator().manual_seed(3))
        tokens = model.rollout(ids, mask, Token(length=6), uniform)
        kept = 0

        def count(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal kept
            kept += 1
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            logits, _ = model.forward(tokens)
        logits.square().mean().backward()  # type: ignore[no-untyped-call]
        trained = model.weights.parameters.values()
        grads = [p.grad for p in trained if p.grad is not None]
        found.append((tokens.log_prob, grads, kept))
    (drawn, plain, most), (same, recomputed, least) = found
    assert torch.equal(drawn, same), "a rollout has a cache also where layers are recomputed"
    for one, other in zip(plain, recomputed, strict=True):
        assert torch.equal(one, other)
    assert least < most / 2
