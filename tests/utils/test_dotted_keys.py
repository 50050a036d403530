"""Values by their dotted keys, and paths in a configuration."""

from pathlib import Path

import pytest

from rlfactory.utils.dotted_keys import (
    leaves,
    path_values,
    texts,
    value_at,
    with_absolute_paths,
    with_values,
)

CONFIG = {"seed": None, "algo": {"_target_": "a.B", "beta": 0.1, "terms": {}}}


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


def test_a_value_is_found_and_a_missing_one_is_told_from_null() -> None:
    assert value_at(CONFIG, "algo.beta") == 0.1
    assert value_at(CONFIG, "seed", "missing") is None
    assert value_at(CONFIG, "seed.more", "missing") == "missing"
    assert value_at(CONFIG, "algo.gamma", "missing") == "missing"


def test_leaves_are_values_without_keys_of_their_own() -> None:
    assert [*leaves(CONFIG)] == [("seed", None), ("algo.beta", 0.1)]


def test_every_text_is_found_with_its_key() -> None:
    nest = {"a": {"_target_": "x", "list": ["y", {"z": "w"}, 3]}, "b": None}
    assert [*texts(nest)] == [("a._target_", "x"), ("a.list.0", "y"), ("a.list.1.z", "w")]
    assert [*texts("alone")] == [("", "alone")]


def test_changes_leave_the_rest_alone() -> None:
    old = {"a": {"b": 1, "c": 2}, "d": 3}
    assert with_values(old, {"a.b": 5}) == {"a": {"b": 5, "c": 2}, "d": 3}
    assert with_values(old, {"a": {"b": 5}, "e.f": 1})["e"] == {"f": 1}
    assert old == {"a": {"b": 1, "c": 2}, "d": 3}
