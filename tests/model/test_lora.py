"""Adapters on a network: what is trained, what switching them off gives, where they start."""

from typing import Any

import pytest
import torch
from diffusers import SD3Transformer2DModel, UNet2DConditionModel

from rlfactory.model.lora import ATTENTION_PROJECTIONS, Lora
from rlfactory.model.pipeline import ModelError


def network() -> SD3Transformer2DModel:
    torch.manual_seed(0)
    return SD3Transformer2DModel(
        sample_size=4,
        patch_size=1,
        in_channels=2,
        out_channels=2,
        num_layers=2,
        attention_head_dim=4,
        num_attention_heads=2,
        joint_attention_dim=8,
        caption_projection_dim=8,
        pooled_projection_dim=8,
        pos_embed_max_size=8,
    )


def test_only_the_eight_projections_are_trained_and_b_starts_at_zero() -> None:
    lora = Lora(network(), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS)
    names = lora.parameters()
    # the last joint block has no text output, so it lacks one of the eight
    assert len(names) == 2 * (2 * len(ATTENTION_PROJECTIONS) - 1)
    assert all(p.abs().sum() == 0 for k, p in names.items() if "lora_B" in k)
    assert all(p.abs().sum() > 0 for k, p in names.items() if "lora_A" in k)


def test_the_start_is_the_seeds() -> None:
    starts = [
        Lora(network(), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS, seed=s) for s in (0, 0, 1)
    ]
    first, same, other = (list(lora.parameters().values()) for lora in starts)
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_off_is_the_network_without_adapters_also_after_an_error() -> None:
    plain, lora = network(), Lora(network(), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS)
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "hidden_states": torch.randn(1, 2, 4, 4, generator=generator),
        "encoder_hidden_states": torch.randn(1, 3, 8, generator=generator),
        "pooled_projections": torch.randn(1, 8, generator=generator),
        "timestep": torch.tensor([500.0]),
        "return_dict": False,
    }
    with torch.no_grad():
        for parameter in lora.parameters().values():
            parameter.add_(0.5)
        expected, tuned = plain(**inputs)[0], lora.network(**inputs)[0]
        assert not torch.allclose(tuned, expected)
        try:
            with lora.off():
                assert torch.equal(lora.network(**inputs)[0], expected)
                raise KeyError
        except KeyError:
            pass
        assert torch.equal(lora.network(**inputs)[0], tuned)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_adapters_are_in_float32_on_whatever_they_adapt(dtype: torch.dtype) -> None:
    start = Lora(network(), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS).parameters()
    lora = Lora(network().to(dtype), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS)
    assert {p.dtype for p in lora.parameters().values()} == {torch.float32}
    assert all(torch.equal(p, start[name]) for name, p in lora.parameters().items())
    frozen = {p.dtype for p in lora.network.parameters() if not p.requires_grad}
    assert frozen == {dtype}


def inputs() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {
        "hidden_states": torch.randn(1, 2, 4, 4, generator=generator),
        "encoder_hidden_states": torch.randn(1, 3, 8, generator=generator),
        "pooled_projections": torch.randn(1, 8, generator=generator),
        "timestep": torch.tensor([500.0]),
        "return_dict": False,
    }


@pytest.mark.parametrize("init", ["gaussian", "kaiming", "orthogonal"])
def test_adapters_begin_without_effect(init: Any) -> None:
    plain = network()
    tuned = Lora(network(), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS, init=init).network
    with torch.no_grad():
        torch.testing.assert_close(tuned(**inputs())[0], plain(**inputs())[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (["attn.to_q", "attn.to_g"], "is named attn.to_g; among .*attn.to_q"),
        (["nonesuch"], r"lora_targets=\['nonesuch'\]: no module of SD3Transformer2DModel"),
        (["o_q"], "is named o_q"),
    ],
)
def test_a_target_that_is_nowhere_is_named_beside_some_that_are(
    targets: list[str], said: str
) -> None:
    with pytest.raises(ModelError, match=said):
        Lora(network(), rank=2, alpha=4.0, targets=targets)


def test_names_of_another_kind_of_network_are_not_those_of_this_one() -> None:
    unet = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8,),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D",),
        up_block_types=("CrossAttnUpBlock2D",),
        cross_attention_dim=8,
        attention_head_dim=2,
        norm_num_groups=2,
    )
    with pytest.raises(ModelError, match=r"attn\.to_q; among those that are: .*attn1\.to_q"):
        Lora(unet, rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS)


def test_orthogonal_adapters_come_in_pairs() -> None:
    with pytest.raises(ModelError, match="model.lora_rank=3"):
        Lora(network(), rank=3, alpha=4.0, targets=ATTENTION_PROJECTIONS, init="orthogonal")
