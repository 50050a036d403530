"""The formulas of activations against what autograd keeps of real blocks, on fake tensors."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from rlfactory.config.memory import activations
from rlfactory.config.memory.activations import (
    ComputeOptions,
    activation_bytes,
    autoencoder_widths,
    decoding_bytes,
    family_of,
    latent_channels,
    unet_blocks,
)
from rlfactory.config.memory.model_parts import published
from rlfactory.model import memory
from rlfactory.model.flux2 import TARGETS as OF_FLUX2
from rlfactory.model.lora import ATTENTION_PROJECTIONS, Lora
from rlfactory.model.lora import CROSS_ATTENTION_PROJECTIONS as OF_CROSS
from rlfactory.model.pipelines import loading
from rlfactory.model.saved_activations import keep_halves
from rlfactory.model.sd import ATTENTION_PROJECTIONS as OF_UNETS
from rlfactory.model.z_image import ATTENTION_PROJECTIONS as OF_Z_IMAGE

TOLERANCE = 0.15

# full width, few blocks: what is counted is proportional to their number
SMALLER = {
    "flux_dev": {"num_layers": 2, "num_single_layers": 3},
    "sd35_medium": {"num_layers": 4, "dual_attention_layers": [1, 2]},
    "sd14": {
        "block_out_channels": [128, 256],
        "layers_per_block": 1,
        "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
    },
    "sdxl": {
        "block_out_channels": [96, 192, 384],
        "layers_per_block": 1,
        "transformer_layers_per_block": [1, 2, 6],
        "attention_head_dim": [2, 4, 8],
    },
    "qwen_image": {"num_layers": 8},
    "z_image": {"n_layers": 6, "n_refiner_layers": 1},
    "flux2_klein": {"num_layers": 3, "num_single_layers": 6},
    "sana": {"num_layers": 6},
    "wan": {"num_layers": 8},
}
FRAMES = 3
EDGE = {
    "flux_dev": 32,
    "sd35_medium": 32,
    "sd14": 32,
    "sdxl": 64,
    "qwen_image": 32,
    "z_image": 32,
    "flux2_klein": 32,
    "sana": 32,
    "wan": 24,
}
TEXT = {
    "flux_dev": 64,
    "sd35_medium": 80,
    "sd14": 77,
    "sdxl": 77,
    "qwen_image": 64,
    "z_image": 64,
    "flux2_klein": 64,
    "sana": 300,
    "wan": 64,
}
OPTIONS = {
    "lora": ComputeOptions(rank=16),
    "lora, half": ComputeOptions(rank=16, half=True),
    "lora, half, again": ComputeOptions(rank=16, half=True, checkpointing=True),
    "lora, again": ComputeOptions(rank=16, checkpointing=True),
    "full": ComputeOptions(full=True),
    "full, half": ComputeOptions(full=True, half=True),
}


def area(name: str) -> int:
    """The number of latents of a sample."""
    return EDGE[name] ** 2 * (FRAMES if name == "wan" else 1)


def prepared(bench: ModuleType, name: str, options: ComputeOptions) -> Any:
    """The network with these options, on fake tensors."""
    described = published()[name]["parts"]
    part = described.get("unet") or described["transformer"]
    network = bench.part(part, **SMALLER[name])
    if not options.full:
        network.requires_grad_(False).to(torch.bfloat16 if options.half else torch.float32)
        others = {"sd14": OF_UNETS, "sdxl": OF_UNETS, "z_image": OF_Z_IMAGE}
        others |= {"flux2_klein": OF_FLUX2, "sana": OF_CROSS, "wan": OF_CROSS}
        targets = others.get(name, ATTENTION_PROJECTIONS)
        Lora(network, rank=options.rank, alpha=1.0, targets=targets)
        keep_halves(network)
    if options.checkpointing:
        network.enable_gradient_checkpointing()
    return network.train(options.checkpointing)


def inputs(name: str, network: Any, batch: int) -> dict[str, torch.Tensor]:
    config, edge, text = network.config, EDGE[name], TEXT[name]
    if name in ("sd14", "sdxl"):
        sizes = {"text_embeds": torch.empty(batch, 1280), "time_ids": torch.empty(batch, 6)}
        return {
            "sample": torch.empty(batch, 4, edge, edge),
            "timestep": torch.empty(batch, dtype=torch.long),
            "encoder_hidden_states": torch.empty(batch, text, config.cross_attention_dim),
            "added_cond_kwargs": sizes if name == "sdxl" else {},
        }
    if name == "qwen_image":
        return {
            "hidden_states": torch.empty(batch, (edge // 2) ** 2, config.in_channels),
            "timestep": torch.empty(batch),
            "encoder_hidden_states": torch.empty(batch, text, config.joint_attention_dim),
            "encoder_hidden_states_mask": torch.empty(batch, text, dtype=torch.bool),
            "img_shapes": [[(1, edge // 2, edge // 2)]] * batch,
        }
    if name == "z_image":
        return {
            "x": [*torch.empty(batch, config.in_channels, 1, edge, edge)],
            "t": torch.empty(batch),
            "cap_feats": [*torch.empty(batch, text, config.cap_feat_dim)],
        }
    if name == "sana":
        return {
            "hidden_states": torch.empty(batch, config.in_channels, edge, edge),
            "timestep": torch.empty(batch),
            "encoder_hidden_states": torch.empty(batch, text, config.caption_channels),
            "encoder_attention_mask": torch.empty(batch, text, dtype=torch.long),
        }
    if name == "flux2_klein":
        image = (edge // 2) ** 2
        return {
            "hidden_states": torch.empty(batch, image, config.in_channels),
            "timestep": torch.empty(batch),
            "encoder_hidden_states": torch.empty(batch, text, config.joint_attention_dim),
            "img_ids": torch.empty(image, 4),
            "txt_ids": torch.empty(text, 4),
        }
    if name == "wan":
        return {
            "hidden_states": torch.empty(batch, config.in_channels, FRAMES, edge, edge),
            "timestep": torch.empty(batch),
            "encoder_hidden_states": torch.empty(batch, text, config.text_dim),
        }
    told = {
        "timestep": torch.empty(batch),
        "encoder_hidden_states": torch.empty(batch, text, config.joint_attention_dim),
        "pooled_projections": torch.empty(batch, config.pooled_projection_dim),
    }
    if name == "sd35_medium":
        return told | {"hidden_states": torch.empty(batch, 16, edge, edge)}
    image = (edge // 2) ** 2
    places = {"img_ids": torch.empty(image, 3), "txt_ids": torch.empty(text, 3)}
    return (
        told
        | places
        | {
            "hidden_states": torch.empty(batch, image, 64),
            "guidance": torch.empty(batch),
        }
    )


def stacked(prediction: Any) -> torch.Tensor:
    """One tensor, of networks that return a list too."""
    return torch.stack(prediction) if isinstance(prediction, list) else prediction


@pytest.fixture
def count(bench: ModuleType) -> Callable[..., Any]:
    """Measures a network with options, for a batch."""

    def measure(name: str, options: ComputeOptions, batch: int) -> tuple[Any, Any]:
        network = prepared(bench, name, options)
        with bench.ghost.fake_tensors():
            bench.ghost.with_fake_tensors(network)
            given = inputs(name, network, batch)

            def predict() -> torch.Tensor:
                with torch.autocast("cpu", torch.bfloat16, enabled=options.half):
                    return stacked(network(**given, return_dict=False)[0])

            return bench.ghost.measured(predict), network

    return measure


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "manner"),
    [
        (name, manner)
        for name in SMALLER
        for manner in OPTIONS
        # an attention network takes long, and Stable Diffusion 1 has its formula with all options
        if name != "sdxl" or manner in ("lora, again", "full, half")
    ],
)
def test_a_formula_says_what_is_kept(name: str, manner: str, count: Callable[..., Any]) -> None:
    how, batch = OPTIONS[manner], 3
    found, network = count(name, how, batch)
    expected = activation_bytes(dict(network.config), area(name), TEXT[name], how)
    # autocast's copies of trained weights do not grow with the batch; `memory.py` adds them
    copies = 2 * sum(p.numel() for p in network.parameters()) if how.full and how.half else 0
    assert batch * expected.saved + copies == pytest.approx(found.saved, rel=TOLERANCE)
    assert batch * expected.sampling + copies == pytest.approx(found.sampling, rel=TOLERANCE)
    if not how.full:  # whose gradients are counted apart
        whole = batch * (expected.saved + expected.backward)
        assert whole == pytest.approx(found.learning, rel=TOLERANCE)


@pytest.mark.parametrize("frames", [5, 33])
def test_decoding_a_video_takes_what_is_said(frames: int, bench: ModuleType) -> None:
    described = published()["wan"]["parts"]["vae"]
    vae = bench.part(described).requires_grad_(False).eval()
    with bench.ghost.fake_tensors():
        bench.ghost.with_fake_tensors(vae)
        latents = torch.empty(1, latent_channels(vae.config), (frames - 1) // 4 + 1, 8, 8)
        with torch.no_grad(), bench.ghost.Live() as live:
            vae.decode(latents, return_dict=False)
    assert decoding_bytes(vae.config, 64**2, 1, frames) == pytest.approx(live.peak, rel=0.1)


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("name", ["flux_dev", "sd14", "qwen_image", "sana"])
def test_decoding_takes_what_is_said(name: str, size: int, bench: ModuleType) -> None:
    vae = bench.part(published()[name]["parts"]["vae"]).requires_grad_(False).eval()
    with bench.ghost.fake_tensors():
        bench.ghost.with_fake_tensors(vae)
        frames = [1] if "z_dim" in vae.config else []
        edge = size // 2 ** (len(autoencoder_widths(vae.config)) - 1)
        latents = torch.empty(2, latent_channels(vae.config), *frames, edge, edge)
        with torch.no_grad(), bench.ghost.Live() as live:
            vae.decode(latents, return_dict=False)
    assert decoding_bytes(vae.config, size**2, 2) == pytest.approx(live.peak, rel=0.05)


def test_sizes_are_those_of_the_decoder() -> None:
    assert activations.LARGEST_TILE == memory.LARGEST_TILE
    assert activations.PIXELS_TOGETHER == loading.PIXELS_TOGETHER


def test_blocks_are_those_of_the_network(bench: ModuleType) -> None:
    described = published()["sd14"]["parts"]["unet"]
    network = bench.part(described)
    blocks = [*unet_blocks(described["config"], 64**2)]
    residuals = [b for b in blocks if b[0] == "residual"]
    found = [m for m in network.modules() if type(m).__name__ == "ResnetBlock2D"]
    assert sorted((b[2], b[3]) for b in residuals) == sorted(
        (m.in_channels, m.out_channels) for m in found
    )
    transformers = [m for m in network.modules() if type(m).__name__ == "Transformer2DModel"]
    assert sorted(b[2] for b in blocks if b[0] == "transformer") == sorted(
        m.in_channels for m in transformers
    )


def test_live_counts_storages_while_they_live(bench: ModuleType) -> None:
    with bench.ghost.Live() as live:
        x = torch.empty(1000)
        seen = x.view(10, 100)  # the same storage
        assert live.now == 4000
        y = seen + 1
        assert live.now == live.peak == 8000
        del y
        assert (live.now, live.peak) == (4000, 8000)
        del seen, x
        assert live.now == 0


def test_other_networks_are_no_family() -> None:
    with pytest.raises(ValueError, match="no network of a family"):
        family_of({"sample_size": 8})
