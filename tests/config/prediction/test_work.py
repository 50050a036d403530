"""FLOPs, bytes and launches from configurations against what torch counts on fake tensors."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from transformers import AutoConfig, AutoModelForCausalLM

from rlfactory.config.memory.activations import ComputeOptions
from rlfactory.config.memory.language_shapes import language_shape
from rlfactory.config.memory.model_parts import parts_of, published
from rlfactory.config.prediction.decoding import decoding
from rlfactory.config.prediction.devices import gpu_models
from rlfactory.config.prediction.image_work import network_passes
from rlfactory.config.prediction.language_work import hidden_passes
from rlfactory.config.prediction.work import Speeds, Work, rate_of

BENCH = Path(__file__).parents[3] / "scripts" / "bench"
NETWORKS = Path(__file__).parents[1] / "memory"
EDGE, TEXT = 32, 77
NAMES = (
    *("flux_dev", "sd35_medium", "sd14", "sdxl", "qwen_image", "z_image", "flux2_klein"),
    *("sana", "wan"),
)
OPTIONS = {
    "lora": ComputeOptions(rank=16),
    "lora, half": ComputeOptions(rank=16, half=True),
    "full": ComputeOptions(full=True),
    "full, half": ComputeOptions(full=True, half=True),
}


@pytest.fixture(scope="module")
def tools() -> Iterator[tuple[ModuleType, ModuleType, ModuleType, ModuleType]]:
    """The benches' `published`, `ghost` and `work`, and the networks of the memory tests."""
    import importlib

    sys.path[:0] = [str(BENCH), str(NETWORKS)]
    names = ("published", "ghost", "work", "test_activations")
    loaded = [importlib.import_module(name) for name in names]
    yield loaded[0], loaded[1], loaded[2], loaded[3]
    del sys.path[:2]


def close(found: Work, flops: float, moved: float, launches: float) -> None:
    assert found.flops == pytest.approx(flops, rel=0.1)
    assert found.bytes == pytest.approx(moved, rel=0.15)
    assert found.launches == pytest.approx(launches, rel=0.25)  # few blocks: the last one is less


@pytest.mark.slow
@pytest.mark.parametrize("manner", OPTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_passes_of_image_networks(
    name: str, manner: str, tools: tuple[ModuleType, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, ghost, work, networks = tools
    options, rows = OPTIONS[manner], 3
    monkeypatch.setitem(networks.TEXT, name, TEXT)
    network = networks.prepared(bench, name, options)
    parameters = sum(p.numel() for n, p in network.named_parameters() if "lora_" not in n)
    with ghost.fake_tensors():
        ghost.with_fake_tensors(network)
        given = networks.inputs(name, network, rows)

        def predict() -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=options.half):
                return networks.stacked(network(**given, return_dict=False)[0])

        with torch.no_grad(), work.Counter() as first:
            predict()
        with work.Counter() as both:
            predict().float().pow(2).mean().backward()
    forward, backward = network_passes(
        dict(network.config), networks.area(name), TEXT, rows, options, parameters
    )
    assert forward.flops == pytest.approx(first.flops, rel=0.01)
    assert forward.rate == rate_of(options.half)
    close(forward, first.flops, first.bytes, first.launches)
    rest = (both.flops - first.flops, both.bytes - first.bytes, both.launches - first.launches)
    close(backward, *rest)


def test_launches_at_full_depth_are_those_of_a_gpu() -> None:
    """As counted on a pretended CUDA device, LoRA in bf16."""
    for name, edge, text, forward, backward in (
        ("sd35_medium", 64, 333, 3967, 5022),
        ("flux_dev", 64, 512, 5943, 6941),
        ("sd14", 64, 77, 2176, 2316),
    ):
        parts = published()[name]["parts"]
        config = (parts.get("unet") or parts["transformer"])["config"]
        options = ComputeOptions(half=True, rank=32)
        found = network_passes(config, edge**2, text, 1, options, 0)
        assert found[0].launches == pytest.approx(forward, rel=0.15)
        assert found[1].launches == pytest.approx(backward, rel=0.15)


def test_checkpointing_adds_a_forward_pass() -> None:
    config = published()["flux_dev"]["parts"]["transformer"]["config"]
    plain, again = (
        network_passes(config, 64**2, 512, 1, ComputeOptions(checkpointing=on), 0) for on in (0, 1)
    )
    assert again[1].flops == plain[1].flops + plain[0].flops


SANA = "Efficient-Large-Model/SANA1.5_1.6B_1024px_diffusers"


@pytest.mark.parametrize("path", ["black-forest-labs/FLUX.1-dev", "zoo:tiny_sd3", SANA])
def test_decoding(path: str, tools: tuple[ModuleType, ...]) -> None:
    bench, ghost, work, _ = tools
    parts = parts_of(path)
    assert parts is not None
    config, edge = parts["vae"].config, 16
    kind = "AutoencoderDC" if path == SANA else "AutoencoderKL"
    described = {"class": f"diffusers.{kind}", "config": config}
    vae = bench.part(described).requires_grad_(False).eval()
    with ghost.fake_tensors():
        ghost.with_fake_tensors(vae)
        latents = torch.empty(2, config["latent_channels"], edge, edge)
        with torch.no_grad(), work.Counter() as found:
            vae.decode(latents, return_dict=False)
    expected = decoding(config, edge**2, 2)
    assert expected.flops == pytest.approx(found.flops, rel=0.01)
    assert expected.bytes == pytest.approx(found.bytes, rel=0.15)
    assert expected.launches == pytest.approx(found.launches, rel=0.15)


@pytest.mark.parametrize("frames", [1, 3, 9])
def test_decoding_of_videos(frames: int, tools: tuple[ModuleType, ...]) -> None:
    bench, ghost, work, _ = tools
    described, edge = published()["wan"]["parts"]["vae"], 8
    vae = bench.part(described).requires_grad_(False).eval()
    with ghost.fake_tensors():
        ghost.with_fake_tensors(vae)
        latents = torch.empty(1, described["config"]["z_dim"], frames, edge, edge)
        with torch.no_grad(), work.Counter() as found:
            vae.decode(latents, return_dict=False)
    expected = decoding(described["config"], frames * edge**2, 1, frames)
    assert expected.flops == pytest.approx(found.flops, rel=0.01)
    assert expected.bytes == pytest.approx(found.bytes, rel=0.02)
    assert expected.launches == pytest.approx(found.launches, rel=0.02)


SMALL = {
    "gpt2": {"n_embd": 512, "n_head": 8, "vocab_size": 999, "n_layer": 4},
    "qwen3": {"hidden_size": 512, "intermediate_size": 1792, "num_attention_heads": 8}
    | {"num_key_value_heads": 4, "vocab_size": 999, "head_dim": 64, "num_hidden_layers": 4},
    "llama": {"hidden_size": 512, "intermediate_size": 1280, "num_attention_heads": 8}
    | {"num_key_value_heads": 4, "vocab_size": 999, "head_dim": 64, "num_hidden_layers": 4},
}


@pytest.mark.slow
@pytest.mark.parametrize("manner", ["lora, half", "full"])
@pytest.mark.parametrize("kind", SMALL)
def test_passes_of_language_models(kind: str, manner: str, tools: tuple[ModuleType, ...]) -> None:
    _, ghost, work, _ = tools
    options, rows, tokens = OPTIONS[manner], 4, 160
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(kind, **SMALL[kind], **ends)
        ).eval()
    if not options.full:
        network.requires_grad_(False).to(torch.bfloat16)
        targets = ["c_attn"] if kind == "gpt2" else ["q_proj", "v_proj"]
        inject_adapter_in_model(LoraConfig(r=16, target_modules=targets), network)
    with ghost.fake_tensors():
        ghost.with_fake_tensors(network)
        ids = torch.zeros(rows, tokens, dtype=torch.long)
        mask = torch.ones(rows, tokens, dtype=torch.bool)

        def predict() -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=options.half):
                return network.base_model(
                    input_ids=ids, attention_mask=mask, use_cache=False
                ).last_hidden_state

        with torch.no_grad(), work.Counter() as first:
            predict()
        with work.Counter() as both:
            predict().float().pow(2).mean().backward()
    shape = language_shape({"model_type": kind, **SMALL[kind], "n_positions": 1024})
    assert shape is not None
    forward, backward = hidden_passes(shape, rows, tokens, options)
    close(forward, first.flops, first.bytes, first.launches)
    rest = (both.flops - first.flops, both.bytes - first.bytes, both.launches - first.launches)
    close(backward, *rest)


def test_a_gpu_waits_for_the_longer_of_launches_and_kernels() -> None:
    gpu = gpu_models()["h100"]
    speeds = Speeds.of(gpu)
    kernels = Work(flops=1e15, bytes=1e9, rate="half")
    assert speeds.seconds(kernels) == pytest.approx(1e15 / speeds.half + 1e9 / speeds.bandwidth)
    assert speeds.seconds(kernels + Work(launches=10)) == speeds.seconds(kernels)
    assert speeds.seconds(Work(launches=1000)) == pytest.approx(1000 * speeds.launch)
    assert speeds.seconds(kernels + Work(sent=1e9)) > speeds.seconds(kernels)
    on_cpu = Speeds(1e12, 1e11, 1e11, 1e10, 1e-6, 1e9, is_async=False)
    both = Work(flops=1e11, launches=1000, rate="single")
    assert on_cpu.seconds(both) == pytest.approx(1 + 1e-3)
    assert (both * 2).flops == 2e11
