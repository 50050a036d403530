"""The published architectures on `meta`: parameters, shapes, and a step of learning."""

import json
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlfactory.config.memory.model_parts import (
    Activations,
    language_models,
    parts_of,
    published,
)
from rlfactory.model.flux import Flux
from rlfactory.model.sd import SD
from rlfactory.model.sd3 import SD3
from rlfactory.rollout import Condition

# Where each count is published: docs/full_size.md. Those of SD3.5's transformers are known to two
# digits only, and stand in COARSE.
COUNTS = {
    "CLIPTextModel": 123_060_480,
    "CLIPTextModelWithProjection/768": 123_650_304,
    "CLIPTextModelWithProjection/1280": 694_659_840,
    "T5EncoderModel": 4_762_310_656,
    "AutoencoderKL/4": 83_653_863,
    "AutoencoderKL/16": 83_819_683,
    "ChromaTransformer2DModel": 8_899_983_424,
    "QwenImage21Transformer2DModel": 7_115_124_736,
    "Qwen3VLForConditionalGeneration/8b": 8_767_123_696,
    "AutoencoderKLQwenImage21": 337_740_404,
    "UNet2DConditionModel": 859_520_964,
    "UNet2DConditionModel/xl": 2_567_463_684,
    "QwenImageTransformer2DModel": 20_430_401_088,
    "ZImageTransformer2DModel": 6_154_908_736,
    "Flux2Transformer2DModel/klein": 3_875_544_576,
    "Flux2Transformer2DModel/dev": 32_223_281_152,
    "Flux3Transformer2DModel/klein base": 5_538_458_368,
    "Flux3Transformer2DModel/klein": 5_548_681_984,
    "Qwen3VLForConditionalGeneration": 4_437_815_808,
    "Mistral3ForConditionalGeneration": 24_011_361_280,
    "AutoencoderKLFlux2": 84_046_115,
    "SanaTransformer2DModel": 1_604_641_952,
    "Gemma2Model": 2_614_341_888,
    "AutoencoderDC": 312_250_275,
    "Qwen3Model": 4_022_468_096,
    "Qwen2_5_VLForConditionalGeneration": 8_292_166_656,
    "AutoencoderKLQwenImage, Wan": 126_892_531,
    "Krea2Transformer2DModel": 12_820_073_036,
    "Qwen3VLModel": 4_437_815_808,
    "ErnieImageTransformer2DModel": 8_033_490_048,
    "Mistral3Model": 3_849_090_048,
    "Lumina2Transformer2DModel": 2_609_769_152,
    "LTXVideoTransformer3DModel": 1_923_385_472,
    "AutoencoderKLLTXVideo/0.9": 419_193_649,
    "AutoencoderKLLTXVideo/0.9.1": 934_991_538,
    "WanTransformer3DModel": 1_418_996_800,
    "WanTransformer3DModel/A14B": 14_288_491_584,
    "WanTransformer3DModel/A14B, image to video": 14_288_901_184,
    "WanTransformer3DModel/2.1, image to video": 16_394_878_784,
    "CLIPVisionModel": 630_766_080,
    "UMT5EncoderModel": 5_680_910_336,
    "FluxTransformer2DModel/dev": 11_901_408_320,
    "FluxTransformer2DModel/schnell": 11_891_178_560,
}
COARSE = {"sd35_medium": 2.47e9, "sd35_large": 8.1e9}
FLUXES = ("flux_dev", "flux_schnell")


def distinct() -> dict[str, dict[str, Any]]:
    """Each part once, though several pipelines have it."""
    found = {}
    for name, pipeline in published().items():
        for key, part in pipeline["parts"].items():
            found.setdefault(json.dumps(part), (f"{name}/{key}", part))
    return dict(found.values())


PARTS = distinct()


@pytest.mark.parametrize("name", PARTS)
def test_a_network_has_as_many_parameters_as_are_said(name: str, bench: ModuleType) -> None:
    network = bench.part(PARTS[name])
    assert sum(p.numel() for p in network.parameters()) == PARTS[name]["parameters"]


def test_they_are_those_that_are_published() -> None:
    said = {part["parameters"] for part in PARTS.values()}
    assert set(COUNTS.values()) <= said
    for name, count in COARSE.items():
        part = published()[name]["parts"]["transformer"]
        positions = (
            part["config"]["pos_embed_max_size"] ** 2 * part["config"]["caption_projection_dim"]
        )
        assert part["parameters"] + positions == pytest.approx(count, rel=0.01)
        said.remove(part["parameters"])
    assert said == set(COUNTS.values())


# the others are whole; these have the same blocks, and fewer of them here
SHORTER = {
    "sd35_large": {"num_layers": 3},
    "flux_schnell": {"num_layers": 2, "num_single_layers": 3},
}


def adapter(bench: ModuleType, name: str, **options: Any) -> Any:
    """Our adapter on a pipeline of `meta`."""
    meta = torch.device("meta")
    pipe = bench.pipeline(name, meta, transformer=SHORTER.get(name, {}))
    with bench.in_place_of_loading(pipe):
        if name == "sd14":
            return SD(meta, path=name, guidance=5.0, **options)
        if name in FLUXES:
            guidance = 3.5 if name == "flux_dev" else None
            return Flux(meta, path=name, embedded_guidance=guidance, **options)
        return SD3(meta, path=name, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sd14", "sd35_medium", "sd35_large", *FLUXES])
def test_a_step_of_learning_runs_on_shapes_alone(name: str, bench: ModuleType) -> None:
    model = adapter(bench, name)
    channels = 4 if name == "sd14" else 16
    assert model.resolution.shape == (channels, 64, 64)
    condition = Condition(
        {key: rows.to("meta") for key, rows in model.encode(["a", "b"]).tensors.items()}
    )
    x, t = torch.empty(2, channels, 64, 64, device="meta"), torch.empty(2, device="meta")
    prediction = model.predict(x, t, condition)
    assert prediction.shape == x.shape
    prediction.pow(2).mean().backward()
    parameters = model.weights.parameters
    assert all(p.grad is not None and p.grad.shape == p.shape for p in parameters.values())
    if name not in SHORTER:
        found = parts_of(published()[name]["hub"][0])
        network = Activations(found["unet" if name == "sd14" else "transformer"])
        rank = 4 if name == "sd14" else 32
        trained = sum(p.numel() for p in parameters.values())
        assert network.adapters(rank, None) == pytest.approx(trained, rel=1e-4)


def test_a_picture_has_its_size(bench: ModuleType) -> None:
    pipe = bench.pipeline("flux_dev", torch.device("meta"), transformer={"num_layers": 1})
    latents = torch.empty(1, 16, 64, 64, device="meta")
    assert pipe.vae.decode(latents, return_dict=False)[0].shape == (1, 3, 512, 512)


def test_text_encoders_say_as_much_as_their_stand_ins(bench: ModuleType) -> None:
    ids = torch.zeros(1, 77, dtype=torch.long, device="meta")
    parts = published()["sd35_medium"]["parts"]
    pooled = [
        bench.part(parts[key], num_hidden_layers=1)(ids).text_embeds.shape[1]
        for key in ("text_encoder", "text_encoder_2")
    ]
    long = torch.zeros(1, 256, dtype=torch.long, device="meta")
    sequence = bench.part(parts["text_encoder_3"], num_layers=1)(long)[0]
    model = adapter(bench, "sd35_medium")
    tensors = model.encode(["a"]).tensors
    assert tensors["pooled"].shape == (1, sum(pooled))
    assert tensors["sequence"].shape == (1, 77 + 256, sequence.shape[2])


def test_the_same_prompt_has_the_same_embeddings(bench: ModuleType) -> None:
    pipe = bench.pipeline("flux_dev", torch.device("meta"))
    drawn = [bench._rows("sequence/a", (2, 3)) for _ in range(2)]
    assert torch.equal(*drawn)
    assert not torch.equal(drawn[0], bench._rows("sequence/b", (2, 3)))
    assert pipe.encode_prompt(["a"], max_sequence_length=5)[0].shape == (1, 5, 4096)


ROWS = {row["hub"][0]: row for row in language_models()}


@pytest.mark.parametrize("hub", ROWS)
def test_a_language_model_has_as_many_parameters_as_are_said(hub: str) -> None:
    config = ROWS[hub]["config"]
    values = {key: value for key, value in config.items() if key != "model_type"}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    with torch.device("meta"):
        kind = AutoConfig.for_model(config["model_type"], **values, **ends)
        network = AutoModelForCausalLM.from_config(kind)
    assert sum(p.numel() for p in network.parameters()) == ROWS[hub]["parameters"]
