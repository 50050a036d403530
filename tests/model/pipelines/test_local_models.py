"""The family and sizes of a model, from the JSON files in its folder."""

import json
from pathlib import Path

import pytest

from rlfactory.model.pipelines.local_models import (
    folder_of,
    is_offline,
    left_out,
    nearest_sizes,
    part_variant,
    pipeline_fault,
    pipeline_of,
    read_json,
    resolve,
    sizes_of,
    snapshot,
    takes_guidance,
    variant_of,
    zoo_path,
)


def test_shipped_models_are_folders() -> None:
    texts = ("tiny_gpt2", "sentiment", "randomwalks", "arithmetic")
    for name in ("tiny_sd3", "tiny_sd", "tiny_flux", *texts, "shapes_scorer"):
        assert (zoo_path(name) / "README.md").is_file(), "each has its card"
    assert resolve("zoo:tiny_sd3", "model_index.json") == str(zoo_path("tiny_sd3"))


def test_an_unknown_one_lists_those_there_are() -> None:
    with pytest.raises(
        ValueError,
        match="randomwalks, sentiment, shapes_scorer, smollm2, tiny_digits, tiny_flux, tiny_gpt2",
    ):
        resolve("zoo:none", "config.json")


def test_a_folder_must_hold_its_index(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no config.json"):
        resolve(str(tmp_path), "config.json")
    (tmp_path / "config.json").write_text("{}")
    assert resolve(str(tmp_path), "config.json") == str(tmp_path)


@pytest.mark.parametrize("path", ["/no/where", "./nowhere", "~/nowhere-at-all", "a/b/c"])
def test_what_can_only_be_a_folder_must_exist(path: str) -> None:
    with pytest.raises(ValueError, match="there is no folder"):
        resolve(path, "config.json")


@pytest.mark.parametrize("path", ["owner/name", "gpt2"])
def test_anything_else_is_one_of_the_hub(path: str) -> None:
    assert resolve(path, "config.json") == path


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of `owner/name` as huggingface_hub keeps it."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    repo = tmp_path / "models--owner--name"
    folder = repo / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc\n")
    return folder


def test_a_model_is_found_by_any_of_its_names(kept: Path, tmp_path: Path) -> None:
    assert folder_of("zoo:tiny_sd3") == zoo_path("tiny_sd3")
    assert folder_of(str(tmp_path)) == tmp_path
    assert folder_of("owner/name") == snapshot("owner/name") == kept
    assert folder_of("zoo:nothing") is folder_of("owner/other") is folder_of("/no/where") is None


def test_a_commit_that_was_not_fetched_is_no_snapshot(kept: Path) -> None:
    kept.rmdir()
    assert snapshot("owner/name") is None


@pytest.mark.parametrize(
    ("word", "offline"), [("1", True), ("on", True), ("0", False), ("", False)]
)
def test_offline_is_what_the_hub_takes_for_it(
    word: str, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", word)
    assert is_offline() is offline


@pytest.mark.parametrize(("text", "content"), [('{"a": 1}', {"a": 1}), ("[1]", {}), ("{", {})])
def test_only_a_mapping_is_a_configuration(
    text: str, content: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(text)
    assert read_json(tmp_path / "config.json") == content
    assert read_json(tmp_path / "none.json") == {}


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
    assert pipeline_of(tmp_path) is takes_guidance({}) is None
    assert sizes_of({}, {}, "FluxPipeline") is None


def test_sizes_are_multiples_of_what_a_token_or_a_latent_covers() -> None:
    vae = {"block_out_channels": [1, 2, 3, 4]}
    assert sizes_of(vae, {}, "StableDiffusionPipeline") == (8, None)
    assert sizes_of(vae, {}, "FluxPipeline") == (16, None)
    assert sizes_of(vae, {}, "StableDiffusion3Pipeline") is None
    assert sizes_of(vae, {}, "StableDiffusionXLPipeline") == (8, None)
    network = {"patch_size": 2, "pos_embed_max_size": 192}
    assert sizes_of(vae, network, "StableDiffusion3Pipeline") == (16, 3072)
    video = {"temperal_downsample": [False, True, True]}
    assert sizes_of(video, network, "QwenImagePipeline") == (16, None)
    assert sizes_of(video, network, "MinePipeline") == (16, 3072)
    assert sizes_of(vae, {}, "SanaPipeline") == (8, None)
    deep = {"temperal_downsample": [False, True, True, True]}
    assert sizes_of(deep, {}, "QwenImage21Pipeline") == (32, None)


def test_the_nearest_sizes_come_first() -> None:
    assert nearest_sizes(500, 16) == [496, 512]
    assert nearest_sizes(510, 16) == [512, 496]
    assert nearest_sizes(512, 16) == [512]
    assert nearest_sizes(3, 16) == [16]
    assert nearest_sizes(5000, 16, 3072) == [3072]


def test_guidance_is_an_input_where_the_network_says_so() -> None:
    assert takes_guidance({"guidance_embeds": True}) is True
    assert takes_guidance({"in_channels": 64}) is False


@pytest.mark.parametrize("name", ["tiny_sd", "tiny_sd3", "tiny_flux"])
def test_what_ships_is_whole(name: str) -> None:
    folder = zoo_path(name)
    assert pipeline_fault(folder) is variant_of(folder) is None
    assert left_out(folder) == []


def test_a_variant_is_taken_where_there_is_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"unet": ["a", "b"], "vae": ["a", "b"]}))
    for name in ("unet/m.safetensors", "vae/model.bf16.safetensors", "vae/model.fp16.safetensors"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "unet/model.safetensors").touch()
    (tmp_path / "unet/model.fp16.safetensors").touch()
    assert part_variant(tmp_path / "unet") is None
    assert variant_of(tmp_path) == "fp16"
    (tmp_path / "vae/model.fp16.safetensors").unlink()
    assert variant_of(tmp_path) == "bf16"
