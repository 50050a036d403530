"""Paths in a configuration."""

from pathlib import Path

import pytest

from rlfactory.utils.path_keys import path_values, with_absolute_paths


def test_paths_become_absolute_and_all_else_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "r.py").write_text("")
    config = {
        "model": {"path": "model", "value_path": None, "size": 64},
        "prompts": {"path": "owner/name", "split": "model"},
        "reward": {"parts": {"a": {"function": "r.py:f"}, "b": {"function": "math:sqrt"}}},
        "begin_from": "runs/a",
        "prompt_cache": None,
    }
    found = with_absolute_paths(config)
    assert found["model"] == {"path": str(tmp_path / "model"), "value_path": None, "size": 64}
    assert found["prompts"] == config["prompts"], "a hub id, and no path"
    assert found["reward"]["parts"]["a"]["function"] == f"{tmp_path / 'r.py'}:f"
    assert found["reward"]["parts"]["b"]["function"] == "math:sqrt"
    assert found["begin_from"] == str(tmp_path / "runs/a"), "a folder, there or not"
    assert config["model"]["path"] == "model", "the former one is not changed"


@pytest.mark.slow
def test_shipped_models_and_live_objects_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = {"model": {"path": "zoo:tiny_sd3"}, "reward": {"function": "object:reward"}}
    assert with_absolute_paths(config) == config
    assert path_values(config) == {
        "model.path": "zoo:tiny_sd3",
        "reward.function": "object:reward",
    }
