"""Overrides: typed, amended and explained."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from rlfactory.cli.explain import explain_words, origins
from rlfactory.config import overrides
from rlfactory.config.overrides import compose, override_frozen, plan_from_words
from rlfactory.config.plan import make_plan
from rlfactory.config.problems import PlanError


@pytest.fixture
def frozen() -> dict[str, Any]:
    composed = compose(["algo=grpo", "seed=3"])
    made = make_plan(composed.values, composed.choices)
    loaded: dict[str, Any] = yaml.safe_load(made.frozen())
    return loaded


def test_amending_changes_what_is_said_and_nothing_else(frozen: dict[str, Any]) -> None:
    before = yaml.safe_dump(frozen)
    amended = override_frozen(
        frozen, ["reward.quality=50", "reward=compressibility", "evaluation.grid=4"]
    )
    assert amended.problems == []
    assert amended.values["reward"]["quality"] == 50
    assert amended.choices == {**frozen["choices"], "reward": "compressibility"}
    assert amended.values["evaluation"] == {**frozen["evaluation"], "grid": 4}
    kept = set(frozen) - {"reward", "evaluation", "choices"}
    assert all(amended.values[key] == frozen[key] for key in kept)
    assert yaml.safe_dump(frozen) == before


@pytest.mark.parametrize("word", ["evaluation.gird=4", "reward=nope", "evaluation.grid=[", "=3"])
def test_amending_finds_mistakes(frozen: dict[str, Any], word: str) -> None:
    assert len(override_frozen(frozen, [word]).problems) == 1


def test_mistakes_are_found_in_one_composition() -> None:
    of = overrides.Composition.of
    with patch.object(overrides.Composition, "of", wraps=of) as composed:
        found = compose(["algo=grpo", "iteratons=3", "optimizer.lrr=1", "seed=4"])
    assert [problem.key for problem in found.problems] == ["iteratons", "optimizer.lrr"]
    assert found.values["seed"] == 4
    assert found.overrides == ["algo=grpo", "seed=4"]
    assert composed.call_count == 1


def test_what_is_no_option_leaves_the_model_that_other_keys_go_by() -> None:
    with pytest.raises(PlanError) as refused:
        plan_from_words("model=flux", "model.lora_rank=3", "reward=no", "evaluation.size=512")
    assert [problem.key for problem in refused.value.problems] == ["reward"]


def test_a_group_of_ones_own_is_chosen_and_hydra_knows_what_was_typed(tmp_path: Path) -> None:
    (tmp_path / "budget").mkdir()
    (tmp_path / "budget" / "short.yaml").write_text(
        "# @package _global_\niterations: 3\nrun_dir: a/${hydra:runtime.choices.budget}\n"
    )
    searchpath = f"hydra.searchpath=[{tmp_path}]"
    values = compose([searchpath, "+budget=short", "seed=4"]).values
    assert values["iterations"] == 3
    assert values["run_dir"] == "a/short"


def test_an_own_name_of_a_run_folder_leaves_itself_out() -> None:
    values = compose(["run_dir='a/${hydra:job.override_dirname}'", "seed=4"]).values
    assert values["run_dir"] == "a/seed=4"


def test_a_variable_that_is_not_set_is_a_problem() -> None:
    with pytest.raises(PlanError, match="variable NOT_SET_ANYWHERE is not set"):
        compose(["run_dir='${oc.env:NOT_SET_ANYWHERE}/a'"])
    assert compose(["run_dir='${oc.env:NOT_SET_ANYWHERE,b}/a'"]).values["run_dir"] == "b/a"
    assert compose(["run_dir='${oc.env:NOT_SET_ANYWHERE,null}'"]).values["run_dir"] is None


@pytest.mark.parametrize("line", ["/algo: grpo", "override algo: grpo"])
def test_a_file_that_chooses_an_option_wrongly_is_told_the_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        f"# @package _global_\ndefaults:\n  - {line}\n"
    )
    with pytest.raises(PlanError, match="by the line - override /algo: OPTION"):
        compose([f"hydra.searchpath=['{tmp_path}']", "experiment=mine"])


def test_keys_behind_an_interpolation_are_left_to_hydra(tmp_path: Path) -> None:
    (tmp_path / "reward").mkdir()
    (tmp_path / "reward" / "mine.yaml").write_text(
        "_target_: builtins.dict\nof: ${oc.env:NOT_SET_ANYWHERE}\n"
    )
    words = [f"hydra.searchpath=[{tmp_path}]", "reward=mine", "reward.of={a:1}"]
    assert compose(words).values["reward"]["of"] == {"a": 1}


def test_a_list_item_can_be_set() -> None:
    assert compose(["optimizer.betas=[0.8,0.9]"]).values["optimizer"]["betas"] == [0.8, 0.9]


def lines(key: str, *overrides: str) -> list[tuple[str, str]]:
    """Each origin's file and the line it points at."""
    found = []
    for origin in origins(key, compose(overrides)):
        if origin.place.startswith("command line"):
            found.append((origin.place, origin.value))
        else:
            path, _, number = origin.place.rpartition(":")
            with open(path, encoding="utf-8") as file:
                found.append((path.split("conf/")[1], file.readlines()[int(number) - 1].strip()))
    return found


def test_explaining_points_at_the_very_line() -> None:
    assert [path for path, _ in lines("iterations", "experiment=smoke", "iterations=7")] == [
        "config.yaml",
        "experiment/smoke.yaml",
        "command line: iterations=7",
    ]
    (companion,) = lines("algo.baseline", "algo=rloo", "model=gpt2")
    assert companion[0] == "algo/rloo.yaml"
    assert companion[1].startswith("baseline: rloo")
    assert lines("dynamics.noise_level", "algo=grpo") == []  # a default of its class
    assert lines("optimizer.lr")[0][1].startswith("lr: ")


@pytest.mark.parametrize("overrides", [["seed=4"], ["algo=grpo", "+seed=4"], ["nope=1"]])
def test_explaining_gives_the_value_or_says_why_not(overrides: list[str]) -> None:
    if overrides == ["seed=4"]:
        assert explain_words(["seed", *overrides]).startswith("seed = 4\n")
    else:
        with pytest.raises(PlanError):
            explain_words(["seed", *overrides])
