"""Where a model lies on this machine, found without asking the hub."""

from pathlib import Path

import pytest

from rlfactory.model.places import folder_of, is_offline, read_json, snapshot
from rlfactory.zoo.models import zoo_path


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
