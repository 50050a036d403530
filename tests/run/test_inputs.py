"""The copies of a run's prompts and reward files."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from rlfactory.run import inputs
from rlfactory.run.folder import RunFolder
from rlfactory.run.inputs import keep_inputs, remember, with_inputs


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "p.txt").write_text("a\nb\n")
    (tmp_path / "r.py").write_text("def f(): ...\n")
    return {
        "seed": 0,
        "model": {"path": str(tmp_path / "model")},
        "prompts": {"path": str(tmp_path / "p.txt"), "eval_path": None},
        "reward": {"parts": {"own": {"function": f"{tmp_path / 'r.py'}:f"}}},
        "eval_rewards": {"parts": {"other": {"path": "owner/name"}}},
    }


@pytest.fixture
def folder(tmp_path: Path, config: dict[str, Any]) -> RunFolder:
    run = RunFolder.create(tmp_path / "run")
    keep_inputs(run, config)
    return run


def test_files_are_copied_with_their_checksums(folder: RunFolder) -> None:
    index = json.loads((folder.inputs / "index.json").read_text())
    assert [*index] == ["prompts.path", "reward.parts.own.function"]
    assert (folder.inputs / "prompts.path.txt").read_text() == "a\nb\n"
    assert (folder.inputs / "reward.parts.own.function.py").is_file()
    assert index["prompts.path"]["sha256"] == inputs.checksum(folder.inputs / "prompts.path.txt")


def test_what_a_killed_beginning_has_left_is_not_read(
    tmp_path: Path, folder: RunFolder, config: dict[str, Any]
) -> None:
    (folder.inputs / inputs.MERGED).mkdir()
    (folder.inputs / inputs.MERGED / "adapters.safetensors").touch()
    (folder.inputs / inputs.MOVED).write_text('{"model.path": "elsewhere"}')
    keep_inputs(folder, config)
    assert with_inputs(config, folder) == config
    keep_inputs(folder, {"seed": 0})
    assert not folder.inputs.exists()


def test_originals_that_are_there_are_read(folder: RunFolder, config: dict[str, Any]) -> None:
    assert with_inputs(config, folder) == config


def test_copies_stand_in_for_originals_that_are_gone(
    folder: RunFolder, config: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "p.txt").unlink()
    (tmp_path / "r.py").unlink()
    found = with_inputs(config, folder)
    assert found["prompts"]["path"] == str(folder.inputs / "prompts.path.txt")
    copy = folder.inputs / "reward.parts.own.function.py"
    assert found["reward"]["parts"]["own"]["function"] == f"{copy}:f"
    assert found["model"] == config["model"]


def test_an_original_that_changed_is_read_with_a_warning(
    folder: RunFolder,
    config: dict[str, Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "p.txt").write_text("other\n")
    with caplog.at_level(logging.WARNING):
        assert with_inputs(config, folder) == config
    assert "p.txt has changed since the run began" in caplog.text


def test_paths_that_moved_are_remembered_and_can_move_again(
    folder: RunFolder, config: dict[str, Any]
) -> None:
    remember(folder, {"model.path": "/new"})
    assert with_inputs(config, folder)["model"]["path"] == "/new"
    assert with_inputs(config, folder, {"model.path": "/newer"})["model"]["path"] == "/newer"
    assert with_inputs(config, folder)["model"]["path"] == "/new", "typed once, not kept"


def test_large_files_and_other_kinds_are_not_copied(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "LARGEST", 3)
    (tmp_path / "weights.pt").write_text("x")
    config["reward"] = {"path": str(tmp_path / "weights.pt")}
    run = RunFolder.create(tmp_path / "other")
    keep_inputs(run, config)
    assert not run.inputs.exists()
