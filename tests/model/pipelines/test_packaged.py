"""A packaged model becomes a folder of the cache once; what is missing is said."""

from pathlib import Path

import pytest
from tiny_language_models import save_language_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlfactory.model.pipelines import packaged
from rlfactory.model.pipelines.shipped import zoo_path


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches"


def of(sha256: str, package: str = "fake_models") -> packaged.Packaged:
    return packaged.Packaged(package, "a.gguf", sha256, "pip install it")


def in_a_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "fake_models").mkdir(parents=True)
    (folder / "fake_models" / "__init__.py").touch()
    monkeypatch.syspath_prepend(folder)
    file = folder / "fake_models" / "a.gguf"
    file.write_bytes(b"weights")
    return file


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packaged.PACKAGED, "a", of("", "no_such_package"))
    with pytest.raises(ValueError, match="comes with the package no_such_package; type pip inst"):
        zoo_path("a")


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_package(tmp_path, monkeypatch)
    monkeypatch.setitem(packaged.PACKAGED, "a", of("0" * 64))
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
    digest = packaged.hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setitem(packaged.PACKAGED, "a", of(digest))
    # any model's path is saved plainly; dequantising is transformers' own
    convert = f"from rlfactory.model.lm.loading import save_plain; save_plain({str(model)!r}, A)"
    monkeypatch.setattr(packaged, "CONVERT", f"import sys; A = sys.argv[2]; {convert}")
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
    digest = packaged.hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setitem(packaged.PACKAGED, "a", of(digest))
    monkeypatch.setattr(packaged, "CONVERT", "raise OSError('no room')")
    with pytest.raises(ValueError, match=r"could not be converted into .*: OSError: no room"):
        zoo_path("a")
    assert [p.suffix for p in (caches / "rlfactory" / "zoo").iterdir()] == [".lock"]
