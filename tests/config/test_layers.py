"""Files that set keys of options that are not chosen, and experiments written for other models."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from rlfactory.config.layers import layers_of, replaced_nodes
from rlfactory.config.options import folders, options
from rlfactory.config.overrides import compose, plan_composed, plan_from_words
from rlfactory.config.problems import PlanError, Problem, fix_command


@pytest.mark.parametrize(
    ("words", "group", "keys"),
    [
        (["model=tiny_sd", "window=all"], "window", {"_target_", "skip_last"}),
        (
            ["model=tiny_sd", "window=random_contiguous"],
            "window",
            {"_target_", "size", "low", "high"},
        ),
        (["model=sd14", "algo=grpo", "window=fixed"], "window", {"_target_", "steps"}),
        (["experiment=peer/flow_grpo", "window=fixed"], "window", {"_target_", "steps"}),
        (["model=sd35", "algo=grpo", "regularizer=none"], "regularizer", {"_target_"}),
    ],
    ids=lambda value: ",".join(sorted(value)) if isinstance(value, set | list) else value,
)
def test_keys_of_an_option_that_is_not_chosen_are_left_out(
    words: list[str], group: str, keys: set[str]
) -> None:
    assert plan_from_words(*words).config[group].keys() == keys


def test_values_of_the_chosen_option_are_its_own() -> None:
    """`random_contiguous` and tiny_sd's `random_subset` have the same keys."""
    assert compose(["model=tiny_sd"]).values["window"]["size"] == 3
    assert compose(["model=tiny_sd", "window=random_contiguous"]).values["window"]["size"] == 2
    typed = compose(["model=tiny_sd", "window=random_contiguous", "window.size=1"])
    assert typed.values["window"]["size"] == 1


def test_keys_that_are_gone_may_be_deleted_all_the_same() -> None:
    words = ["experiment=peer/cps", "window=all", "~window.size", "~window.low", "~window.high"]
    assert compose(words).problems == []
    assert compose(words).values["window"].keys() == {"_target_", "skip_last"}
    (problem,) = compose([*words, "~schedule.nothing"]).problems
    assert problem.key == "schedule.nothing"


def test_a_configuration_without_a_conflict_is_as_hydra_merges_it() -> None:
    for words in ([], ["algo=grpo"], ["model=sd35"], ["model=sd15", "algo=awm"]):
        choices = compose(words).choices
        assert replaced_nodes(choices, layers_of(choices, folders())) == {}


@pytest.mark.slow
@pytest.mark.parametrize("group", ["window", "times", "dynamics", "advantage", "regularizer"])
@pytest.mark.parametrize("pair", [("sd35", "grpo"), ("sd35", "awm"), ("flux", "vgrpo")], ids=str)
def test_every_option_has_its_own_keys_beside_a_recipe(pair: tuple[str, str], group: str) -> None:
    """No recipe sets a key that another option does not have."""
    model, algo = pair
    for option in options(group):
        words = [f"model={model}", f"algo={algo}", f"{group}={option}"]
        faults: list[Problem] = []
        try:
            plan_composed(compose(words))
        except PlanError as error:
            faults = [p for p in error.problems if "no such key" in p.message]
        assert not faults, option


def test_an_experiment_of_ones_own_file_is_read_too(tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    folder.mkdir()
    head = "# @package _global_\n# Mine\n"
    (folder / "base.yaml").write_text(
        f"{head}defaults:\n  - override /algo: grpo\n  - override /window: all\n"
        "window: {skip_last: 3}\n"
    )
    (folder / "mine.yaml").write_text(f"{head}defaults:\n  - base\n  - _self_\nseed: 4\n")
    place = f"hydra.searchpath=['file://{tmp_path}']"
    assert compose([place, "experiment=mine"]).values["window"]["skip_last"] == 3
    fixed = compose([place, "experiment=mine", "window=fixed"]).values
    assert (fixed["seed"], fixed["window"].keys()) == (4, {"_target_", "steps"})


def test_a_model_of_the_same_class_takes_an_experiments_place() -> None:
    words = ["experiment=peer/flow_grpo", "model=tiny_sd3", "reward=shapes", "prompts=shapes"]
    made = plan_from_words(*words)
    model: Mapping[str, object] = made.config["model"]
    assert (model["path"], model["size"], model["finetune"]) == ("zoo:tiny_sd3", 64, "full")
    assert (made.config["group_size"], made.config["dynamics"]["noise_level"]) == (24, 0.7)
    assert any("takes the place of peer/flow_grpo's sd35" in text for text in made.derived.values())


def test_sizes_of_the_other_model_are_not_kept() -> None:
    words = ["experiment=peer/vgrpo_flux", "model=tiny_flux"]
    assert compose(words).values["evaluation"]["size"] is None
    assert compose([*words, "evaluation.size=32"]).values["evaluation"]["size"] == 32


@pytest.mark.slow
@pytest.mark.parametrize(
    "typed",
    [
        ["experiment=peer/flow_grpo", "model=flux"],
        ["experiment=peer/nft", "model=sd14", "iterations=3"],
        ["model=sd35", "experiment=peer/ddpo"],
        ["experiment=peer/dance", "model=sd35", "reward=pickscore"],
    ],
    ids=str,
)
def test_an_experiment_for_another_network_is_refused(typed: list[str]) -> None:
    composed = compose(typed)
    (problem,) = [p for p in composed.problems if p.key == "experiment"]
    assert "is written for model=" in problem.message
    command = fix_command(problem, typed).split()
    assert "experiment" not in " ".join(command)
    assert {w for w in typed if not w.startswith("experiment")} <= {*command}
    assert plan_from_words(*command[1:]).choices["recipe"] != "none"


@pytest.mark.slow
def test_the_experiments_own_model_is_no_contradiction() -> None:
    assert not compose(["experiment=peer/flow_grpo", "model=sd35"]).problems
    assert not compose(["experiment=smoke", "model=sd35"]).problems
