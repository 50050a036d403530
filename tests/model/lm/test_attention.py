"""Masks are those that transformers would make; layers are recomputed in learning only."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    DynamicCache,
    GPT2Config,
    JambaConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
)
from transformers.cache_utils import DynamicSlidingWindowLayer
from transformers.masking_utils import create_causal_mask

from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.attention import (
    PreallocatedLayer,
    attention_mask,
    masks_by_layers,
    preallocated_cache,
)
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


CONFIG = GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=5, bos_token_id=0, eos_token_id=0)


def states(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 2, count, 4), torch.randn(3, 2, count, 4)


def test_it_holds_what_transformers_own_cache_holds():
    ours, theirs = preallocated_cache(CONFIG, 9), DynamicCache(config=CONFIG)
    for count in (4, 1, 1, 3):
        for layer in range(2):
            key, value = states(count)
            found = ours.update(key, value, layer)
            expected = theirs.update(key, value, layer)
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert ours.get_seq_length() == theirs.get_seq_length() == 9


def test_a_step_copies_nothing_but_its_own_token():
    layer = PreallocatedLayer(5)
    before, _ = layer.update(*states(2))
    after, _ = layer.update(*states(1))
    assert after.data_ptr() == before.data_ptr()


def test_rows_leave_it_as_they_leave_transformers_own():
    ours, theirs = preallocated_cache(CONFIG, 9), DynamicCache(config=CONFIG)
    rows = torch.tensor([0, 2])
    for count, batch in ((4, 3), (2, 2)):
        for layer in range(2):
            key, value = (x[:batch] for x in states(count))
            found, expected = ours.update(key, value, layer), theirs.update(key, value, layer)
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
        if batch == 3:
            ours.reorder_cache(rows)
            theirs.batch_select_indices(rows)


def test_more_than_there_is_room_for_is_refused():
    layer = PreallocatedLayer(2)
    with pytest.raises(RuntimeError):
        layer.update(*states(3))


def test_layers_that_forget_stay_as_they_are():
    config = MistralConfig(num_hidden_layers=1, sliding_window=4)
    assert isinstance(preallocated_cache(config, 9).layers[0], DynamicSlidingWindowLayer)
