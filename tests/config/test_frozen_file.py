"""The configuration of a run folder that was damaged, or edited by hand."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfactory.config.dotted_keys import value_at
from rlfactory.config.frozen_file import frozen_file_problems, read_frozen, try_frozen
from rlfactory.config.overrides import plan_from_words
from rlfactory.utils.data_files import FileError


@pytest.fixture(scope="module")
def sound() -> dict[str, Any]:
    return yaml.safe_load(plan_from_words("algo=grpo", "regularizer=kl_v").frozen())


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
