"""Shipped models share weights, and their folders are complete all the same."""

from pathlib import Path

import pytest
import torch
from diffusers import DiffusionPipeline
from tiny_language_models import save_language_model
from transformers import AutoModelForCausalLM, AutoTokenizer

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


def of(sha256: str, package: str = "fake_models") -> shipped.Packaged:
    return shipped.Packaged(package, "a.gguf", sha256, "pip install it")


def in_a_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "fake_models").mkdir(parents=True)
    (folder / "fake_models" / "__init__.py").touch()
    monkeypatch.syspath_prepend(folder)
    file = folder / "fake_models" / "a.gguf"
    file.write_bytes(b"weights")
    return file


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shipped.PACKAGED, "a", of("", "no_such_package"))
    with pytest.raises(ValueError, match="comes with the package no_such_package; type pip inst"):
        zoo_path("a")


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_package(tmp_path, monkeypatch)
    monkeypatch.setitem(shipped.PACKAGED, "a", of("0" * 64))
    with pytest.raises(ValueError, match="is not the file that is known"):
        zoo_path("a")


@pytest.mark.slow
def test_it_is_converted_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caches: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = in_a_package(tmp_path, monkeypatch)
    model = save_language_model(tmp_path / "model", "llama")
    digest = shipped.hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setitem(shipped.PACKAGED, "a", of(digest))
    # any model's path is saved plainly; dequantising is transformers' own
    convert = f"from rlfactory.model.lm.loading import save_plain; save_plain({str(model)!r}, A)"
    monkeypatch.setattr(shipped, "CONVERT", f"import sys; A = sys.argv[2]; {convert}")
    folder = zoo_path("a")
    assert folder.parent == caches / "rlfactory" / "zoo"
    assert "is converted, once, into" in capsys.readouterr().err
    network = AutoModelForCausalLM.from_pretrained(folder)
    original = AutoModelForCausalLM.from_pretrained(model)
    assert network.num_parameters() == original.num_parameters()
    assert AutoTokenizer.from_pretrained(folder).eos_token
    file.write_bytes(b"other weights")
    capsys.readouterr()
    assert zoo_path("a") == folder
    assert capsys.readouterr().err == ""
    assert {p.name for p in folder.parent.iterdir()} == {folder.name, f"{folder.name}.lock"}


def test_a_failed_conversion_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caches: Path
) -> None:
    file = in_a_package(tmp_path, monkeypatch)
    digest = shipped.hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setitem(shipped.PACKAGED, "a", of(digest))
    monkeypatch.setattr(shipped, "CONVERT", "raise OSError('no room')")
    with pytest.raises(ValueError, match=r"could not be converted into .*: OSError: no room"):
        zoo_path("a")
    assert [p.suffix for p in (caches / "rlfactory" / "zoo").iterdir()] == [".lock"]


def test_a_cache_that_cannot_be_written_is_named_with_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caches: Path
) -> None:
    file = in_a_package(tmp_path, monkeypatch)
    digest = shipped.hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setitem(shipped.PACKAGED, "a", of(digest))
    caches.mkdir(parents=True, exist_ok=True)
    (caches / "rlfactory").write_text("a file where the folder goes")
    with pytest.raises(ValueError, match=r"can't be written .*; set XDG_CACHE_HOME=FOLDER"):
        zoo_path("a")
