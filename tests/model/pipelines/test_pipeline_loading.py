"""Loading pipelines: precision, messages, and decoding."""

import contextlib
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import (
    Flux2KleinPipeline,
    StableDiffusion3Pipeline,
    StableDiffusionPipeline,
    WanPipeline,
)
from diffusers.utils import logging as diffusers_log
from safetensors import safe_open
from transformers.utils import logging as transformers_log

from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.hub_models import no_bars
from rlfactory.model.pipelines.pipeline_loading import copy_pipeline, load_frozen, load_pipeline
from rlfactory.model.precision import Precision
from rlfactory.utils.errors import ModelError

CPU = torch.device("cpu")
HALF = Precision(weights="bfloat16", rollout="bfloat16", learning="bfloat16")

PARTS = ["transformer", "vae", "text_encoder", "text_encoder_2", "text_encoder_3"]


def load(path: str | Path) -> StableDiffusion3Pipeline:
    return load_pipeline(StableDiffusion3Pipeline, str(path), torch.float32)


def test_every_part_is_in_the_precision_asked_for_whatever_was_saved(sd3_folder: Path) -> None:
    with safe_open(sd3_folder / "text_encoder" / "model.safetensors", "pt") as file:
        assert file.get_tensor(next(iter(file.keys()))).dtype == torch.float16
    pipe = load(sd3_folder)
    for part in PARTS:
        tensors = [*getattr(pipe, part).parameters(), *getattr(pipe, part).buffers()]
        assert {t.dtype for t in tensors if t.is_floating_point()} == {torch.float32}, part


@pytest.mark.parametrize(("kind", "folder"), [(WanPipeline, "wan"), (Flux2KleinPipeline, "flux2")])
def test_a_pipeline_in_memory_is_stored_as_its_folder_is_read(
    kind: Any, folder: str, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(f"{folder}_folder")
    dtypes = {"default": torch.bfloat16, "vae": torch.float32}
    read = load_pipeline(kind, str(path), dtypes)
    copied = copy_pipeline(kind, load_pipeline(kind, str(path), torch.float32), dtypes, {})
    for name in ("transformer", "text_encoder", "vae"):
        own, given = (getattr(pipe, name) for pipe in (copied, read))
        expected = {**dict(given.named_parameters()), **dict(given.named_buffers())}
        for key, tensor in (*own.named_parameters(), *own.named_buffers()):
            assert tensor.dtype == expected[key].dtype, key
            assert torch.equal(tensor, expected[key]), key


def test_loading_says_nothing(sd3_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(sd3_folder)
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""


def test_bars_come_back_as_they_were() -> None:
    before = [lib.is_progress_bar_enabled() for lib in (diffusers_log, transformers_log)]
    with contextlib.suppress(RuntimeError), no_bars():
        assert not diffusers_log.is_progress_bar_enabled()
        assert not transformers_log.is_progress_bar_enabled()
        raise RuntimeError
    assert [lib.is_progress_bar_enabled() for lib in (diffusers_log, transformers_log)] == before


def without_index(folder: Path) -> None:
    (folder / "model_index.json").unlink()


def broken_index(folder: Path) -> None:
    (folder / "model_index.json").write_text("{")


def another_pipeline(folder: Path) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    other = {"_class_name": "StableDiffusionPipeline", "vae": index["vae"]}
    (folder / "model_index.json").write_text(json.dumps(other))


def without_transformer(folder: Path) -> None:
    shutil.rmtree(folder / "transformer")


def torn_transformer(folder: Path) -> None:
    (folder / "transformer" / "diffusion_pytorch_model.safetensors").write_bytes(b"torn")


def torn_encoder(folder: Path) -> None:
    (folder / "text_encoder" / "model.safetensors").write_bytes(b"torn")


@pytest.mark.parametrize(
    "harm",
    [
        without_index,
        broken_index,
        another_pipeline,
        without_transformer,
        torn_transformer,
        torn_encoder,
    ],
)
def test_a_folder_that_is_no_whole_pipeline_is_an_error_with_the_key(
    harm: Callable[[Path], None], sd3_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "harmed"
    shutil.copytree(sd3_folder, folder)
    harm(folder)
    with pytest.raises(ModelError, match=r"^model\.path=.*harmed"):
        load(folder)


def test_a_folder_of_another_family_is_refused_with_its_own_option(
    flux_folders: dict[str, Path],
) -> None:
    path = flux_folders["dev"]
    said = f"model.path={path} is a FluxPipeline, not a StableDiffusion3Pipeline"
    with pytest.raises(ModelError, match=rf"^{said}; type model=flux model.path={path}$"):
        load(path)


@pytest.mark.parametrize("path", ["zoo:nonesuch", "./nonesuch", "/nonesuch", "~/nonesuch", "a/b/c"])
def test_a_path_that_leads_nowhere_is_an_error_with_the_key(path: str) -> None:
    with pytest.raises(ModelError, match=rf"^model\.path={path}"):
        load(path)


@pytest.mark.parametrize("trained_parts", [(), ("unet",)])
def test_each_part_has_its_precision_and_nothing_is_trained(
    sd_folder: Path, trained_parts: tuple[str, ...]
) -> None:
    pipe = load_frozen(
        StableDiffusionPipeline,
        str(sd_folder),
        CPU,
        HALF,
        Memory(vae_slicing=True),
        trained_parts=trained_parts,
    )
    exact = torch.float32
    assert pipe.vae.dtype == exact  # a picture in half precision is another picture
    assert pipe.unet.dtype == (exact if trained_parts else torch.bfloat16)
    assert pipe.text_encoder.dtype == torch.bfloat16
    parts = [pipe.vae, pipe.unet, pipe.text_encoder]
    assert not any(p.requires_grad for part in parts for p in part.parameters())
    assert not any(part.training for part in parts)
    assert pipe.vae.use_slicing
