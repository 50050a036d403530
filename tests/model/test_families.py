"""What a folder's small files say of the model in it."""

import json
from pathlib import Path

import pytest

from rlfactory.model.families import (
    is_language_model,
    nearest_sizes,
    pipeline_of,
    sizes_of,
    takes_guidance,
)
from rlfactory.zoo.models import zoo_path


def write(folder: Path, name: str, **content: object) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(content))


@pytest.mark.parametrize(
    "name",
    [
        *("StableDiffusionPipeline", "StableDiffusionImg2ImgPipeline"),
        "StableDiffusionInpaintPipeline",
    ],
)
def test_other_ways_to_use_the_same_parts_are_the_same_family(name: str, tmp_path: Path) -> None:
    write(tmp_path, "model_index.json", _class_name=name)
    assert pipeline_of(tmp_path) == "StableDiffusionPipeline"


def test_what_does_not_say_has_no_family(tmp_path: Path) -> None:
    assert pipeline_of(tmp_path) is takes_guidance(tmp_path) is None
    assert sizes_of(tmp_path, "FluxPipeline") is None
    assert not is_language_model(tmp_path)
    assert is_language_model(zoo_path("tiny_gpt2"))


def test_sizes_are_multiples_of_what_a_token_or_a_latent_covers(tmp_path: Path) -> None:
    write(tmp_path, "vae/config.json", block_out_channels=[1, 2, 3, 4])
    assert sizes_of(tmp_path, "StableDiffusionPipeline") == (8, None)
    assert sizes_of(tmp_path, "FluxPipeline") == (16, None)
    assert sizes_of(tmp_path, "StableDiffusion3Pipeline") is None
    write(tmp_path, "transformer/config.json", patch_size=2, pos_embed_max_size=192)
    assert sizes_of(tmp_path, "StableDiffusion3Pipeline") == (16, 3072)


def test_the_nearest_sizes_come_first() -> None:
    assert nearest_sizes(500, 16) == [496, 512]
    assert nearest_sizes(510, 16) == [512, 496]
    assert nearest_sizes(512, 16) == [512]
    assert nearest_sizes(3, 16) == [16]
    assert nearest_sizes(5000, 16, 3072) == [3072]


def test_guidance_is_an_input_where_the_network_says_so(tmp_path: Path) -> None:
    write(tmp_path, "transformer/config.json", guidance_embeds=True)
    assert takes_guidance(tmp_path) is True
    write(tmp_path, "transformer/config.json", in_channels=64)
    assert takes_guidance(tmp_path) is False
