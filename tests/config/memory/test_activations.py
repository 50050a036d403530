"""The measured rows of activations against counts on fake tensors, and how they scale."""

import importlib
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from rlfactory.config.memory.devices import GIB
from rlfactory.config.memory.model_parts import (
    LANGUAGE_MODEL,
    Activations,
    Part,
    parts_of,
    published,
)
from rlfactory.config.memory.peak_memory import estimate, peak_of, traits_of
from rlfactory.config.memory.phases import image_use, latent_area, text_tokens
from rlfactory.config.overrides import plan_from_words
from rlfactory.model.pipelines.local_models import latent_group, latent_pixels
from rlfactory.tools.fake_tensors import Counting, fake_tensors, with_fake_tensors

TOLERANCE = 0.2
COUNTED = Path(__file__).parents[3] / "docs" / "full_size.md"
PEAKS: dict[str, float] = json.loads(Path(__file__).with_name("peaks.json").read_text())


@pytest.mark.parametrize("words", PEAKS)
def test_the_peak_is_what_was_counted_on_the_engine(words: str) -> None:
    """By scripts/bench/peaks.py, which builds no text encoders."""
    config = plan_from_words(*words.split()).config
    found = estimate(config, traits_of(config))
    assert found is not None
    assert (peak_of(found) - found["text encoders"]) / GIB == pytest.approx(PEAKS[words], rel=0.1)


def counted() -> dict[str, float]:
    """What the page says of stored activations of one item in bf16 with LoRA, in GiB."""
    rows = re.findall(r"^\| (\w+) \|(.+)\|$", COUNTED.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: float(cells.split("|")[-2]) for name, cells in rows if name != "model"}


@pytest.mark.parametrize("name", counted())
def test_what_autograd_keeps_is_what_was_counted_at_full_size(name: str) -> None:
    options = {"sd35_medium": "sd35", "flux_dev": "flux"}
    sizes = {"wan": ["[240,416]", "model.frames=33"], "ltx": ["[480,704]", "model.frames=49"]}
    size, *video = sizes.get(name, ["512"])
    words = [f"model={options.get(name, name)}", "recipe=none", "algo=nft", "micro_batch=1", *video]
    words.append(f"model.size={size}")
    words += ["precision=bf16", "hardware.gpu=h100"]
    if name != "flux2_dev":  # the defaults of the adapters, with which the page was counted
        guided = name in ("sd14", "sdxl", "qwen_image", "flux3_klein", "ltx", "wan")
        words.append(f"model.guidance={4.5 if guided else 1}")
    words += ["model.text_tokens=256"] if name in ("krea2", "qwen_image_21") else []
    config = plan_from_words(*words).config
    config = {**config, "prompts_per_iteration": 1, "group_size": 1}  # no samples wait
    learning = image_use(config, traits_of(config)).learning
    assert learning / GIB == pytest.approx(counted()[name], rel=TOLERANCE)


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("name", ["flux_dev", "sd14", "qwen_image", "qwen_image_21", "sana"])
def test_decoding_takes_what_is_said(name: str, size: int, bench: ModuleType) -> None:
    vae = parts_of(published()[name]["hub"][0])["vae"]
    frames = [1] if "z_dim" in vae.config else []
    edge = size // latent_pixels(vae.config)
    peak = decoded(bench, name, [*frames, edge, edge], images=2)
    assert 2 * Activations(vae).decoding(size**2, 1) == pytest.approx(peak, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "frames"), [("wan", 5), ("wan", 33), ("ltx", 9), ("ltx", 49)])
def test_decoding_a_video_takes_what_is_said(name: str, frames: int, bench: ModuleType) -> None:
    vae = parts_of(published()[name]["hub"][0])["vae"]
    peak = decoded(bench, name, [(frames - 1) // latent_group(vae.config) + 1, 8, 8])
    pixels = (8 * (latent_pixels(vae.config) or 1)) ** 2
    assert Activations(vae).decoding(pixels, frames) == pytest.approx(peak, rel=0.1)


def decoded(bench: ModuleType, name: str, shape: list[int], images: int = 1) -> float:
    vae = bench.part(published()[name]["parts"]["vae"]).requires_grad_(False).eval()
    channels = vae.config.get("z_dim") or vae.config["latent_channels"]
    with fake_tensors() as mode:
        with_fake_tensors(vae, mode)
        latents = torch.empty(images, channels, *shape)
        with torch.no_grad(), Counting() as live:
            vae.decode(latents, return_dict=False)
    return live.peak


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["openai-community/gpt2", pytest.param("sd35_medium", marks=pytest.mark.whole)],  # of minutes
)
def test_a_row_is_what_the_script_counts(name: str, bench: ModuleType) -> None:
    script = importlib.import_module("activations")
    (row,) = script.rows([name])
    (stored,) = (r for r in script.stored() if r["name"] == name)
    assert row.keys() <= stored.keys()
    for key in (key for key in row if " " in key):
        for now, then in zip(row[key], stored[key], strict=True):
            assert now == pytest.approx(then, rel=TOLERANCE, abs=1000), key


def test_a_network_of_another_size_has_the_nearest_row_in_proportion() -> None:
    flux = parts_of("black-forest-labs/FLUX.1-dev")["transformer"]
    half = Part(flux.parameters // 2, {"num_layers": 9, "num_single_layers": 20}, flux.kind)
    whole, part = Activations(flux), Activations(half)
    assert whole.scale == pytest.approx(1, abs=1e-4)
    ratio = part.learning("lora half", 4096, 512) / whole.learning("lora half", 4096, 512)
    assert ratio == pytest.approx(half.size / flux.size)
    assert part.adapters(32, None) == pytest.approx(ratio * whole.adapters(32, None))


def test_adapters_on_fewer_targets_are_fewer() -> None:
    found = Activations(parts_of("black-forest-labs/FLUX.1-dev")["transformer"])
    adapters = 2 * 3072 * (8 * 19 + 3 * 38)
    assert found.adapters(32, None) == pytest.approx(32 * adapters, rel=1e-4)
    two = found.adapters(2, ["attn.to_q", "attn.to_k"])
    assert two == pytest.approx(2 * adapters * 2 / 8, rel=1e-4)
    assert found.adapters(2, "all-linear") == pytest.approx(2 * adapters * 2, rel=1e-4)


def test_other_architectures_are_not_known() -> None:
    with pytest.raises(LookupError, match="Mamba"):
        Activations(Part(10, {"num_layers": 1}, "Mamba"))


def test_a_picture_has_as_many_tokens_as_the_sample() -> None:
    for words, tokens in (("flux_kontext", 512 + 1024), ("flux", 512), ("sd35", 77 + 256)):
        config = plan_from_words(f"model={words}", "recipe=none").config
        vae = parts_of(config["model"]["path"])["vae"]
        assert latent_area(vae, config, 512) // 4 == 1024
        assert text_tokens(config, traits_of(config), vae) == tokens


def test_a_language_model_is_one_part() -> None:
    tiny = parts_of("zoo:tiny_gpt2")[LANGUAGE_MODEL]
    assert (tiny.blocks, tiny.kind, tiny.size) == (4, "gpt2", 4 * 256)
    assert parts_of("Qwen/Qwen2.5-3B")[LANGUAGE_MODEL].kind == "llama"
    assert parts_of("owner/unknown") is None
