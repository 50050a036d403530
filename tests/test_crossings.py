"""Each rule between choices fires where it should and is silent elsewhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlfactory import crossings
from rlfactory.crossings import RULES, Rule

SOUND: dict[str, Any] = {
    "prompts_per_iteration": 4,
    "group_size": 6,
    "updates_per_iteration": 2,
    "start_noise": "own",
    "schedule": {"steps": 10},
    "window": {"skip_last": 1},
    "prompts": {"_target_": "rlfactory.prompts.shapes.ShapesPrompts"},
    "algo": {},
    "regularizer": {},
    "model": {"path": "owner/name"},
    "optimizer": {"lr": 1e-4, "betas": [0.9, 0.999]},
}
STEPWISE: dict[str, Any] = {
    "algo": {"needs": "transitions", "grouped": True},
    "model": {"media": "images", "process": "flow"},
    "dynamics": {"process": "flow", "log_prob": True},
    "regularizer": {"needs": "transitions"},
    "reward": {"media": "images", "metadata": ("include",)},
    "prompts": {"metadata": ("tag", "include")},
}


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {**base, **changes}


def keys(rule: Rule, config: dict[str, Any], traits: dict[str, Any]) -> list[str]:
    found = rule(merged(SOUND, config), merged(STEPWISE, traits))
    assert isinstance(found, Iterator)
    return [problem.key for problem in found]


SUM: dict[str, Any] = {"regularizer": {"terms": {"a": {}}}}


def terms(traits: dict[str, Any], name: str = "a") -> dict[str, Any]:
    """The traits of a sum of one term."""
    return {"regularizer": {"needs": "terms"}, f"regularizer.terms.{name}": traits}


FIRES: list[tuple[Rule, dict[str, Any], dict[str, Any], str]] = [
    (crossings.algorithm_fits_model, {}, {"algo": {"needs": "tokens"}}, "algo"),
    (crossings.algorithm_fits_model, {}, {"model": {"process": "tokens"}}, "algo"),
    (crossings.dynamics_fit_model, {}, {"dynamics": {"process": "vp"}}, "dynamics"),
    (crossings.stepwise_needs_likelihood, {}, {"dynamics": {"log_prob": False}}, "dynamics"),
    (
        crossings.regularizer_fits_algorithm,
        {},
        {"algo": {"needs": "forward_process"}},
        "regularizer",
    ),
    (crossings.regularizer_fits_algorithm, {}, {"regularizer": {"needs": "tokens"}}, "regularizer"),
    (crossings.regularizer_fits_algorithm, {}, {"algo": {"needs": "tokens"}}, "regularizer"),
    (
        crossings.divergence_teaches,
        {"regularizer": {"placement": "loss", "estimator": "k1"}},
        {},
        "regularizer.estimator",
    ),
    (
        crossings.regularizer_fits_algorithm,
        SUM,
        {"algo": {"needs": "forward_process"}, **terms({"needs": "transitions"})},
        "regularizer.terms.a",
    ),
    (
        crossings.regularizer_fits_algorithm,
        SUM,
        {"algo": {"needs": "tokens"}, **terms({"needs": "velocity"})},
        "regularizer.terms.a",
    ),
    (
        crossings.divergence_fits_process,
        {},
        {"regularizer": {"process": "flow"}, "model": {"process": "vp"}},
        "regularizer",
    ),
    (
        crossings.divergence_fits_process,
        SUM,
        {**terms({"process": "flow"}), "model": {"process": "vp"}},
        "regularizer.terms.a",
    ),
    (
        crossings.behaviour_has_surrogate,
        {"regularizer": {"compare": "surrogate"}},
        {},
        "regularizer.compare",
    ),
    (
        crossings.behaviour_has_surrogate,
        {"regularizer": {"terms": {"a": {"compare": "surrogate"}}}},
        terms({"needs": "velocity"}),
        "regularizer.terms.a.compare",
    ),
    (crossings.terms_add_up, {"regularizer": {"terms": {}}}, terms({}), "regularizer.terms"),
    (crossings.terms_add_up, SUM, terms({"needs": "nothing"}), "regularizer.terms.a"),
    (crossings.terms_add_up, SUM, terms({"needs": "tokens"}), "regularizer.terms.a"),
    (crossings.terms_add_up, SUM, terms({"needs": "terms"}), "regularizer.terms.a"),
    (
        crossings.terms_add_up,
        {"regularizer": {"terms": {"approx": {}}}},
        terms({"needs": "velocity"}, "approx"),
        "regularizer.terms.approx",
    ),
    (crossings.groups_have_members, {"group_size": 1}, {}, "group_size"),
    (
        crossings.groups_have_members,
        {"group_size": 1, "algo": {"baseline": "rloo"}},
        {"algo": {}},
        "group_size",
    ),
    (
        crossings.samples_differ,
        {"start_noise": "group"},
        {"algo": {"needs": "forward_process"}},
        "start_noise",
    ),
    (crossings.updates_have_samples, {"updates_per_iteration": 5}, {}, "updates_per_iteration"),
    (crossings.window_within_steps, {"window": {"steps": [1, 10]}}, {}, "window.steps"),
    (crossings.window_within_steps, {"window": {"steps": []}}, {}, "window.steps"),
    (crossings.window_within_steps, {"window": {"skip_last": 10}}, {}, "window.skip_last"),
    (
        crossings.window_within_steps,
        {"window": {"size": 2, "low": 0, "high": 11}},
        {},
        "window.high",
    ),
    (
        crossings.window_within_steps,
        {"window": {"size": 3, "low": 8, "high": None}},
        {},
        "window.size",
    ),
    (crossings.reward_judges_what_is_made, {}, {"reward": {"media": "texts"}}, "reward"),
    (crossings.prompts_bring_metadata, {}, {"prompts": {"metadata": ("tag",)}}, "prompts"),
    (
        crossings.prompt_files_are_readable,
        {"prompts": {"_target_": "x.FilePrompts", "path": "/no/where.txt"}},
        {},
        "prompts.path",
    ),
    (crossings.optimizer_moves, {"optimizer": {"lr": 0.0}}, {}, "optimizer.lr"),
    (crossings.optimizer_moves, {"optimizer": {"betas": [0.9, 1.0]}}, {}, "optimizer.betas"),
    (crossings.optimizer_moves, {"optimizer": {"momentum": -0.1}}, {}, "optimizer.momentum"),
    (crossings.window_within_steps, {"window": {"size": 1, "low": 10}}, {}, "window.low"),
    (crossings.model_folders_hold_models, {"model": {"path": "./nowhere"}}, {}, "model.path"),
    (crossings.model_folders_hold_models, {"model": {"path": "zoo:nowhere"}}, {}, "model.path"),
    (
        crossings.model_folders_hold_models,
        {"model": {"path": "owner/name", "value_path": "./nowhere"}},
        {"model": {"media": "texts"}},
        "model.value_path",
    ),
]


@pytest.mark.parametrize(("rule", "config", "traits", "key"), FIRES)
def test_a_rule_fires(rule: Rule, config: dict[str, Any], traits: dict[str, Any], key: str) -> None:
    assert keys(rule, config, traits) == [key]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_silent_where_all_is_well(rule: Rule) -> None:
    assert keys(rule, {}, {}) == []


def test_every_rule_is_seen_to_fire() -> None:
    assert {rule for rule, *_ in FIRES} == set(RULES)


SILENT: list[tuple[Rule, dict[str, Any], dict[str, Any]]] = [
    (crossings.samples_differ, {"start_noise": "group"}, {}),
    (crossings.groups_have_members, {"group_size": 1}, {"algo": {}}),
    (crossings.divergence_teaches, {"regularizer": {"placement": "reward", "estimator": "k1"}}, {}),
    (
        crossings.window_within_steps,
        {"window": {"steps": [99]}},
        {"algo": {"needs": "forward_process"}},
    ),
    (crossings.window_within_steps, {"window": {"size": 2, "low": 8, "high": 10}}, {}),
    (crossings.window_within_steps, {"window": {"size": 10, "low": 0, "high": None}}, {}),
    (crossings.prompts_bring_metadata, {}, {"prompts": {"metadata": None}}),
    (crossings.prompts_bring_metadata, {}, {"reward": {"media": "images"}}),
    (crossings.reward_judges_what_is_made, {}, {"reward": {}}),
    (crossings.stepwise_needs_likelihood, {}, {"algo": {}, "dynamics": {}}),
    (crossings.regularizer_fits_algorithm, {}, {"algo": {}, "regularizer": {"needs": "velocity"}}),
    (crossings.regularizer_fits_algorithm, SUM, terms({"needs": "transitions"})),
    (crossings.divergence_fits_process, {}, {"regularizer": {"process": "flow"}}),
    (crossings.divergence_fits_process, {}, {"model": {"process": "vp"}}),
    (
        crossings.behaviour_has_surrogate,
        {"regularizer": {"compare": "surrogate"}},
        {"algo": {"surrogate": True}},
    ),
    (crossings.behaviour_has_surrogate, {"regularizer": {"compare": "prediction"}}, {}),
    (crossings.terms_add_up, SUM, terms({"needs": "velocity"})),
]


@pytest.mark.parametrize(("rule", "config", "traits"), SILENT)
def test_a_rule_knows_its_limits(
    rule: Rule, config: dict[str, Any], traits: dict[str, Any]
) -> None:
    assert keys(rule, config, traits) == []


@pytest.mark.parametrize(
    ("media", "name"), [("images", "model_index.json"), ("texts", "config.json")]
)
def test_a_folder_with_an_index_is_a_model(tmp_path: Path, media: str, name: str) -> None:
    config, traits = {"model": {"path": str(tmp_path)}}, {"model": {"media": media}}
    assert keys(crossings.model_folders_hold_models, config, traits) == ["model.path"]
    (tmp_path / name).write_text("{}")
    assert keys(crossings.model_folders_hold_models, config, traits) == []


@pytest.mark.parametrize("updates", range(1, 25))
def test_the_updates_that_are_proposed_divide(updates: int) -> None:
    config = merged(SOUND, {"updates_per_iteration": updates})
    problems = list(crossings.updates_have_samples(config, STEPWISE))
    assert bool(problems) == (24 % updates != 0)
    for problem in problems:
        assert 24 % int(problem.remedy.partition("=")[2]) == 0


@pytest.mark.parametrize(
    ("regularizer", "dynamics", "count"),
    [
        ({"placement": "loss", "estimator": "k3"}, {}, 1),
        ({"placement": "reward", "estimator": "k1"}, {"top_k": 20}, 1),
        ({"placement": "reward", "estimator": "k1"}, {"top_p": 0.9}, 1),
        ({"placement": "reward", "estimator": "k1"}, {"top_k": 0, "top_p": 1.0}, 0),
        ({"placement": "loss", "estimator": "exact"}, {"top_k": 20}, 0),
    ],
)
def test_what_is_seldom_meant_is_noted(
    regularizer: dict[str, Any], dynamics: dict[str, Any], count: int
) -> None:
    calm = {"stop": {"kl": None, "reward": None}, "evaluation": {"every": 0}}
    config = {"regularizer": regularizer, "dynamics": dynamics, **calm}
    assert len(list(crossings.cautions(config, STEPWISE))) == count


@pytest.mark.parametrize(
    ("stop", "every", "count"),
    [
        ({"kl": 0.1, "reward": None}, 0, 1),
        ({"kl": None, "reward": 0.0}, 0, 1),
        ({"kl": 0.1, "reward": None}, 10, 0),
        ({"kl": None, "reward": None}, 0, 0),
    ],
)
def test_a_run_that_may_stop_is_told_how_its_best_is_found(
    stop: dict[str, Any], every: int, count: int
) -> None:
    config = {"regularizer": {}, "dynamics": {}, "stop": stop, "evaluation": {"every": every}}
    assert len(list(crossings.cautions(config, STEPWISE))) == count


HELD: dict[str, Any] = {"reference": "old", "coefficient": {"value": 1.0}}
OTHER: dict[str, Any] = {"reference": "reference", "coefficient": {"value": 1.0}}
AWM: dict[str, Any] = {"_target_": "rlfactory.algo.awm.AWM", "clip_range": None}


@pytest.mark.parametrize(
    ("algo", "regularizer", "count"),
    [
        (AWM, {}, 1),
        (AWM, OTHER, 1),
        (AWM, HELD, 0),
        (AWM, {**HELD, "coefficient": {"value": 0.0}}, 1),
        (AWM, {"terms": {"a": OTHER, "b": HELD}}, 0),
        (AWM, {"terms": {"a": OTHER, "b": OTHER}}, 1),
        (AWM, {"compare": "surrogate", "coefficient": {"value": 0.3}}, 0),
        ({**AWM, "clip_range": 1.0}, {}, 0),
        ({**AWM, "_target_": "rlfactory.algo.nft.NFT"}, {}, 0),
    ],
)
def test_awm_that_nothing_holds_is_noted(
    algo: dict[str, Any], regularizer: dict[str, Any], count: int
) -> None:
    calm = {"dynamics": {}, "stop": {"kl": None, "reward": None}, "evaluation": {"every": 0}}
    config = {"algo": algo, "regularizer": regularizer, **calm}
    kind = terms({}) if "terms" in regularizer else {}
    found = list(crossings.cautions(config, merged(STEPWISE, kind)))
    assert len(found) == count
    assert all("wandered" in text for text in found)


@pytest.mark.parametrize(("name", "count"), [("a", 1), ("reference", 0)])
def test_a_sum_without_a_reference_stops_no_run(name: str, count: int) -> None:
    stop = {"stop": {"kl": 0.1, "reward": None}, "evaluation": {"every": 10}, "dynamics": {}}
    config = {"regularizer": {"terms": {name: {}}}, **stop}
    assert len(list(crossings.cautions(config, merged(STEPWISE, terms({}, name))))) == count
