"""Run folders of other versions, and those that are damaged or that somebody changed by hand."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfactory.config import frozen as frozen_configs
from rlfactory.config.frozen import (
    MISSING,
    differences,
    format_diff,
    frozen_file_problems,
    read_frozen,
    try_frozen,
    upgrade,
)
from rlfactory.config.overrides import override_frozen, plan_from_words
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.train.process.worker import read_config
from rlfactory.utils.data_files import FileError
from rlfactory.utils.dotted_keys import value_at


@pytest.fixture(scope="module")
def sound() -> dict[str, Any]:
    return yaml.safe_load(plan_from_words("algo=grpo", "regularizer=kl_v").frozen())


@pytest.fixture
def frozen(sound: dict[str, Any]) -> dict[str, Any]:
    return deepcopy(sound)


def test_what_this_version_wrote_is_whole(frozen: dict[str, Any]) -> None:
    assert frozen_file_problems(frozen) == []
    assert upgrade(frozen) == frozen


def test_what_changes_no_result_is_filled_in(frozen: dict[str, Any]) -> None:
    del frozen["checkpoint"]["minutes"], frozen["checkpoint"]["best"], frozen["guard"]
    frozen["checkpoint"]["keep"] = 7
    whole = upgrade(frozen)
    assert frozen_file_problems(whole) == []
    found = whole["checkpoint"]
    assert (found["minutes"], found["best"], found["keep"]) == (5, True, 7)
    assert whole["guard"]["non_finite"] == "stop"


def test_a_run_of_before_prompt_sets_can_be_evaluated_on_some(frozen: dict[str, Any]) -> None:
    now = dict(frozen)
    del frozen["eval_sets"]
    older = upgrade(frozen)
    assert frozen_file_problems(older) == []
    assert older == now
    judged = ["eval_sets.of=[signs]", "eval_sets.rewards.signs=[compressibility]"]
    amended = override_frozen(older, judged)
    assert amended.problems == []
    assert [*amended.values["eval_rewards"]["parts"]] == ["compressibility"]
    again = override_frozen(amended.values, ["eval_sets.rewards.signs=[incompressibility]"])
    assert again.problems == []
    assert [*again.values["eval_rewards"]["parts"]] == ["incompressibility"]
    none = override_frozen(again.values, ["eval_sets.of=[]"])
    assert none.problems == []
    assert none.values["eval_sets"] == frozen_configs.LATER_KEYS["eval_sets"]
    assert none.values["eval_rewards"]["parts"] == {}


@pytest.mark.parametrize("gone", ["tail", "evaluation.grid", "model.path", "reward", "ema"])
def test_what_it_lacks_is_named(frozen: dict[str, Any], gone: str) -> None:
    node, *rest = gone.split(".")
    del (frozen[node] if rest else frozen)[rest[0] if rest else node]
    (problem,) = frozen_file_problems(frozen)
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
    (problem,) = frozen_file_problems(frozen)
    assert problem.key == ".".join([*path, "_target_"])
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(frozen))
    with pytest.raises(RunFolderError, match="os.system lies outside"):
        read_config(RunFolder(tmp_path))
    frozen["trust"] = ["os"]
    assert "lies outside" not in " ".join(map(str, frozen_file_problems(frozen)))


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
    assert differences(upgrade(frozen), sound) == []
    sound = {**sound, "hardware": {**sound["hardware"], "deterministic": True}}
    (found,) = differences(upgrade(frozen), sound)
    assert found == ("hardware.deterministic", False, True)


def _changed(frozen: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    copy = deepcopy(frozen)
    *above, name = key.split(".")
    (value_at(copy, ".".join(above)) if above else copy)[name] = value
    return copy


def test_what_this_version_wrote_has_no_problems(sound: dict[str, Any]) -> None:
    assert frozen_file_problems(sound) == []


def test_keys_of_other_versions_are_no_problem(sound: dict[str, Any]) -> None:
    changed = _changed(_changed(sound, "checkpoint.later", 1), "later", {"a": 1})
    assert frozen_file_problems(changed) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("iterations", float("inf")),
        ("iterations", "many"),
        ("seed", 2**63),
        ("group_size", [3]),
        ("evaluation", None),
        ("evaluation.prompts", {}),
        ("checkpoint.every", "x"),
        ("learning_rate", 3),
        ("algo.clip", "x"),
        ("model", []),
        ("eval_rewards.parts", {"a": {"_target_": "os.system"}}),
    ],
)
def test_a_value_of_another_type_is_named(sound: dict[str, Any], key: str, value: object) -> None:
    problems = frozen_file_problems(_changed(sound, key, value))
    assert problems
    assert any(problem.key.startswith(key) for problem in problems)


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "a: 1", "iterations: 3\nchoices: [a]", "iterations: 3\nchoices: {algo: 3}"],
)
def test_what_is_no_configuration_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(FileError, match=r"config.yaml: .*restore it from a copy"):
        read_frozen(path)
    assert try_frozen(path) is None


@pytest.mark.parametrize("words", [["resume"], ["evaluate"], ["export", "--to", "x"], ["sync"]])
def test_commands_say_it_and_exit(
    refused: Callable[..., str], tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("iterations: &a [*a]")
    assert "more than 64 levels" in refused(words[0], "run", *words[1:])


BEFORE: dict[str, Any] = {
    "seed": 0,
    "algo": {"_target_": "x.NFT", "beta": 0.1},
    "stop": {"kl": None},
    "trust": [],
    "run_dir": "a",
    "choices": {"algo": "nft"},
}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"run_dir": "b"}, []),
        ({"seed": 1}, [("seed", 0, 1)]),
        ({"seed": False}, [("seed", 0, False)]),
        ({"stop": {"kl": 0.5}}, [("stop.kl", None, 0.5)]),
        ({"trust": ["x"]}, [("trust", [], ["x"])]),
        ({"stop": {}}, [("stop.kl", None, MISSING)]),
        ({"more": 1}, [("more", MISSING, 1)]),
        ({"algo": {"_target_": "x.NFT", "beta": 0.2}}, [("algo.beta", 0.1, 0.2)]),
        ({"algo": {"_target_": "x.AWM"}, "choices": {"algo": "awm"}}, [("algo", "nft", "awm")]),
        # an option under another name that says the same
        ({"choices": {"algo": "mine"}}, []),
    ],
    ids=str,
)
def test_each_key_that_differs_is_named(changes: dict[str, Any], found: list[object]) -> None:
    assert differences(BEFORE, {**BEFORE, **changes}) == found


def test_they_are_told_as_they_are_typed() -> None:
    assert format_diff([("a.b", None, 0.5), ("c", True, "x")]) == "a.b: null -> 0.5, c: true -> x"


def test_an_older_run_may_lack_what_changes_no_result() -> None:
    old, new = {"seed": 1, "checkpoint": {"keep": 2}}, {"seed": 1, "checkpoint": {"keep": 2}}
    assert list(differences(old, {**new, "checkpoint": {"keep": 2, "patience": 30}})) == []
    assert list(differences({"seed": 1}, {**new, "guard": {"limit": 1}})) == []
    removed = {**old, "checkpoint": {"keep": 2, "on_error": "wait"}}
    assert list(differences(removed, new)) == []
    assert differences(old, {**new, "tail": None}) == [("tail", MISSING, None)]
    assert differences(old, {**new, "checkpoint": {"keep": 3}}) == [("checkpoint.keep", 2, 3)]
