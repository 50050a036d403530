"""Modular pipelines: what of them is loaded, and what a saved one says of where its parts lie."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from diffusers import Flux3ModularPipeline, FluxPipeline

from rlfactory.model.pipelines.embedding_cache import PromptCache
from rlfactory.model.pipelines.local_models import (
    MODULAR_INDEX,
    index_of,
    pipeline_fault,
    pipeline_of,
)
from rlfactory.model.pipelines.modular import (
    download_modular,
    is_modular,
    load_modular,
    name_place,
    register,
    save_pipeline,
)
from rlfactory.model.pipelines.pipeline_loading import load_pipeline
from rlfactory.model.pipelines.text_encoders import TextEncoders
from rlfactory.utils.errors import ModelError
from rlfactory.utils.live_objects import live_objects


@pytest.fixture
def folder(flux3_folder: Path, tmp_path: Path) -> Path:
    """A pipeline whose index has its prompt upsampler in one place, and all else in another."""
    copied: Path = shutil.copytree(flux3_folder, tmp_path / "pipe")
    index = json.loads((copied / MODULAR_INDEX).read_text())
    for name, value in index.items():
        if isinstance(value, list):
            place = "someone/upsampler" if name.startswith("prompt") else "someone/else"
            value[2] |= {"pretrained_model_name_or_path": place, "revision": "abc"}
            value[:2] = [None, None]  # as of a pipeline that was saved before it was loaded
    (copied / MODULAR_INDEX).write_text(json.dumps(index))
    return copied


def test_an_index_is_read_as_those_of_other_pipelines(folder: Path) -> None:
    assert pipeline_of(folder) == "Flux3ModularPipeline"
    assert index_of(folder)["transformer"] == ["diffusers", "Flux3Transformer2DModel"]
    assert pipeline_fault(folder) is None


def test_parts_are_loaded_from_the_folder_and_an_upsampler_is_not(folder: Path) -> None:
    pipe = load_modular(Flux3ModularPipeline, folder, {"vae": torch.float64}, {})
    assert pipe.vae.dtype == torch.float64
    assert pipe.transformer.dtype == torch.float32
    assert pipe.prompt_upsampler is None
    assert "prompt_upsampler" not in pipe.blocks.sub_blocks
    assert pipe.scheduler.config.shift == 6.93


def test_parts_may_be_replaced_and_left_out(folder: Path) -> None:
    given = torch.nn.Linear(1, 1)
    parts = {"text_encoder": None, "transformer": given}
    pipe = load_modular(Flux3ModularPipeline, folder, {}, parts)
    assert pipe.text_encoder is None
    assert pipe.transformer is given


def test_a_saved_pipeline_is_whole_and_names_what_it_left_out(folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    pipe = load_modular(Flux3ModularPipeline, folder, {}, {})
    save_pipeline(pipe, saved)
    text = (saved / MODULAR_INDEX).read_text()
    assert str(tmp_path) not in text
    assert "someone/else" not in text
    index = json.loads(text)
    assert index["_blocks_class_name"] == "Flux3AutoBlocks"
    assert index["prompt_upsampler"][2]["pretrained_model_name_or_path"] == "someone/upsampler"
    moved = saved.rename(tmp_path / "moved")
    again = load_modular(Flux3ModularPipeline, moved, {}, {})
    weights = pipe.transformer.state_dict()
    assert all(torch.equal(weights[n], v) for n, v in again.transformer.state_dict().items())
    theirs = Flux3ModularPipeline.from_pretrained(str(moved))  # as a stranger opens it
    theirs.load_components(names=["transformer"], dtype=torch.float32)
    assert theirs.transformer is not None
    name_place(moved, "me/mine")
    index = json.loads((moved / MODULAR_INDEX).read_text())
    assert index["vae"][2]["pretrained_model_name_or_path"] == "me/mine"
    assert index["prompt_upsampler"][2]["pretrained_model_name_or_path"] == "someone/upsampler"


def test_one_in_memory_is_copied(folder: Path) -> None:
    pipe = load_modular(Flux3ModularPipeline, folder, {}, {})
    with live_objects({"model": pipe}):
        copied = load_pipeline(Flux3ModularPipeline, "object:model", torch.float64, vae=None)
        with pytest.raises(ModelError, match="a Flux3ModularPipeline in memory, not a FluxPipe"):
            load_pipeline(FluxPipeline, "object:model", torch.float32)
    assert copied.vae is None
    assert copied.transformer is not pipe.transformer
    assert (copied.transformer.proj_out.weight.dtype, pipe.vae.dtype) == (
        torch.float64,
        torch.float32,
    )
    assert copied.tokenizer is pipe.tokenizer


def test_text_encoders_are_freed_and_loaded_again(folder: Path) -> None:
    encoders = TextEncoders(Flux3ModularPipeline, str(folder), PromptCache(), torch.device("cpu"))
    assert encoders.classes == {"text_encoder": ["transformers", "Qwen3VLForConditionalGeneration"]}
    pipe = load_modular(Flux3ModularPipeline, folder, {}, {})
    first = pipe.text_encoder.state_dict()
    register(pipe, text_encoder=None)
    register(pipe, **{name: encoders._load(name) for name in encoders.classes})
    assert all(torch.equal(first[n], v) for n, v in pipe.text_encoder.state_dict().items())
    assert is_modular(pipe)
    assert not is_modular(FluxPipeline)


def test_a_part_of_another_library_is_refused(folder: Path) -> None:
    index = json.loads((folder / MODULAR_INDEX).read_text())
    index["vae"][2]["type_hint"] = ["os", "system"]
    (folder / MODULAR_INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelError, match="vae is of os, not of diffusers and transformers"):
        load_pipeline(Flux3ModularPipeline, str(folder), torch.float32)


def test_an_upsampler_is_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        "rlfactory.model.pipelines.modular.snapshot_download",
        lambda repo, ignore_patterns: asked.append((repo, ignore_patterns)) or "/there",
    )
    assert download_modular("someone/else") == "/there"
    ((_, patterns),) = asked
    assert "prompt_upsampler/*" in patterns
