"""Adapters on a network: what is trained, what switching them off gives, where they start."""

import torch
from diffusers import SD3Transformer2DModel

from rlfactory.model.lora import ATTENTION_PROJECTIONS, Lora


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
