"""Run folders of other versions, and those that somebody changed by hand."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfactory.config.compat import check_frozen, missing_keys, with_defaults, with_new_keys
from rlfactory.config.diff import differences
from rlfactory.config.overrides import plan_from_words
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.train.process.worker import read_config


@pytest.fixture(scope="module")
def sound() -> dict[str, Any]:
    return yaml.safe_load(plan_from_words("algo=grpo", "regularizer=kl_v").frozen())


@pytest.fixture
def frozen(sound: dict[str, Any]) -> dict[str, Any]:
    return deepcopy(sound)


def test_what_this_version_wrote_is_whole(frozen: dict[str, Any]) -> None:
    assert missing_keys(frozen) == []
    assert check_frozen(frozen) == []
    assert with_defaults(frozen) == frozen


def test_what_changes_no_result_is_filled_in(frozen: dict[str, Any]) -> None:
    del frozen["checkpoint"]["minutes"], frozen["checkpoint"]["best"]
    frozen["checkpoint"]["keep"] = 7
    assert missing_keys(frozen) == ["checkpoint.minutes", "checkpoint.best"]
    assert check_frozen(frozen) == []
    whole = with_defaults(frozen)["checkpoint"]
    assert (whole["minutes"], whole["best"], whole["keep"]) == (5, True, 7)
    del frozen["checkpoint"]
    assert with_defaults(frozen)["checkpoint"]["keep"] == 2


@pytest.mark.parametrize("gone", ["tail", "evaluation.grid", "model.path", "reward", "ema"])
def test_what_it_lacks_is_named(frozen: dict[str, Any], gone: str) -> None:
    node, *rest = gone.split(".")
    del (frozen[node] if rest else frozen)[rest[0] if rest else node]
    (problem,) = check_frozen(frozen)
    assert problem.key.startswith(gone)
    assert f"lacks {gone}" in problem.message
    assert "another version of rlfactory" in problem.message


@pytest.mark.parametrize(
    "path", [["reward"], ["regularizer", "coefficient"], ["checkpoint"], ["eval_rewards", "parts"]]
)
def test_no_target_gets_in_by_hand(frozen: dict[str, Any], tmp_path: Path, path: list[str]) -> None:
    node = frozen
    for part in path:
        node = node[part]
    node["_target_"] = "os.system"
    (problem,) = check_frozen(frozen)
    assert problem.key == ".".join([*path, "_target_"])
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(frozen))
    with pytest.raises(RunFolderError, match="os.system lies outside"):
        read_config(RunFolder(tmp_path))
    frozen["trust"] = ["os"]
    assert check_frozen(frozen) == []


@pytest.mark.parametrize(
    "words", [["resume"], ["evaluate"], ["inspect"], ["sample", "--prompt", "x"]]
)
def test_each_command_says_which_keys_are_missing(
    refused: Callable[..., str], tmp_path: Path, words: list[str], sound: dict[str, Any]
) -> None:
    (tmp_path / "old").mkdir()
    old = {key: value for key, value in sound.items() if key != "epochs"}
    (tmp_path / "old" / "config.yaml").write_text(yaml.safe_dump(old))
    assert "lacks epochs" in refused(words[0], "old", *words[1:])
    assert "lacks epochs" in refused("algo=grpo", "regularizer=kl_v", "run_dir=old")


def test_keys_that_came_later_are_no_difference_at_their_default(
    frozen: dict[str, Any], sound: dict[str, Any]
) -> None:
    del frozen["hardware"]["deterministic"]
    assert check_frozen(frozen) == []
    assert differences(with_new_keys(frozen, sound), sound) == []
    sound = {**sound, "hardware": {**sound["hardware"], "deterministic": True}}
    (found,) = differences(with_new_keys(frozen, sound), sound)
    assert found == ("hardware.deterministic", False, True)
