"""The short form of GPT-2's step is its forward."""

from pathlib import Path

import pytest
import torch

from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.attention import GPT2Step, preallocated_cache
from rlfactory.rollout import Tokens


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("stops", [True, False])
def test_it_draws_what_the_network_draws(
    gpt2_folder: Path, monkeypatch: pytest.MonkeyPatch, padding: int, stops: bool
) -> None:
    model = CausalLM(torch.device("cpu"), path=str(gpt2_folder), value_start="default")
    random = torch.Generator().manual_seed(0)
    prompt = torch.randint(0, 200, (9, 4), generator=random)
    mask = torch.ones_like(prompt, dtype=torch.bool)
    mask[::2, :padding] = False
    uniform = torch.rand(9, 20, generator=random)
    # a third of the tokens end a text
    model._end_ids = [*range(85)]
    dynamics = Token(length=20, stop_at_end=stops)

    def drawn() -> Tokens:
        return model.rollout(prompt, mask, dynamics, uniform)

    short = drawn()
    monkeypatch.setattr(GPT2Step, "fits", staticmethod(lambda *_: False))
    own = drawn()
    assert torch.equal(short.response, own.response)
    assert torch.equal(short.mask, own.mask)
    torch.testing.assert_close(short.log_prob, own.log_prob, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(short.value, own.value, atol=1e-5, rtol=1e-5)
    assert short.value[~short.mask].abs().sum() == 0


def test_a_changed_network_computes_by_its_own_forward(gpt2_folder: Path) -> None:
    plain = CausalLM(torch.device("cpu"), path=str(gpt2_folder)).network
    cache = preallocated_cache(plain.config, 8)
    assert GPT2Step.fits(plain, cache)
    with torch.autocast("cpu", torch.bfloat16):
        assert not GPT2Step.fits(plain, cache)
    hook = plain.transformer.h[1].mlp.register_forward_hook(lambda *_: None)
    assert not GPT2Step.fits(plain, cache)
    hook.remove()
    plain.config.scale_attn_by_inverse_layer_idx = True
    assert not GPT2Step.fits(plain, cache)
    adapted = CausalLM(torch.device("cpu"), path=str(gpt2_folder), finetune="lora").network
    assert not GPT2Step.fits(adapted, cache)
