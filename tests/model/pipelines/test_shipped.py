"""Shipped models share weights, and their folders are complete all the same."""

from pathlib import Path

import pytest
import torch
from diffusers import DiffusionPipeline

from rlfactory.model.pipelines import shipped
from rlfactory.model.pipelines.shipped import SHARED, WEIGHTS, zoo_path


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_model_that_shares_nothing_is_read_where_it_ships() -> None:
    assert zoo_path("tiny_sd3") == WEIGHTS / "tiny_sd3"


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("tiny_flux", "vae/diffusion_pytorch_model.safetensors"),
        ("tiny_sd", "vae/diffusion_pytorch_model-00001-of-00002.safetensors"),
    ],
)
def test_shared_weights_are_added(name: str, weights: str, caches: Path) -> None:
    folder = zoo_path(name)
    assert folder.is_relative_to(caches)
    assert folder.name == name
    assert files(folder) == files(WEIGHTS / name) - {SHARED} | {weights}
    source = WEIGHTS / "tiny_sd3/vae/diffusion_pytorch_model.safetensors"
    assert (folder / weights).samefile(source)
    assert zoo_path(name) == folder
    assert len([*caches.rglob("model_index.json")]) == 1, "nothing is left beside it"


def test_links_to_another_installation_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    before = zoo_path("tiny_flux")
    monkeypatch.setattr(shipped, "__version__", "99")
    assert zoo_path("tiny_flux") != before


def test_without_links_or_a_cache_files_are_copied(
    tmp_path: Path, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(Path, "symlink_to", refuse)
    caches.write_text("no folder")
    monkeypatch.setattr(shipped, "_temporary", lambda: tmp_path / "instead")
    folder = zoo_path("tiny_sd")
    assert folder.parent == tmp_path / "instead"
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    assert (folder / "vae/config.json").read_bytes() == (
        WEIGHTS / "tiny_sd/vae/config.json"
    ).read_bytes()


def test_a_process_that_was_faster_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = zoo_path("tiny_flux")
    monkeypatch.setattr(Path, "is_dir", lambda path: path.exists() and path != target)
    with pytest.raises(OSError, match="not empty"):
        shipped._linked(target, {})
    monkeypatch.undo()
    assert shipped._linked(target, {}) == target


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny_sd", "tiny_sd3", "tiny_flux"])
def test_plain_diffusers_loads_and_calls_a_pipeline(name: str) -> None:
    """Loaded without a dtype, all of its components have the same one."""
    pipe = DiffusionPipeline.from_pretrained(zoo_path(name))
    pipe.set_progress_bar_config(disable=True)
    modules = [part for part in pipe.components.values() if isinstance(part, torch.nn.Module)]
    assert {part.dtype for part in modules} == {torch.float32}
    assert pipe("a red circle", num_inference_steps=1).images
