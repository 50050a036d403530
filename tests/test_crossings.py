"""Each rule between choices fires where it should and is silent elsewhere."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlfactory import crossings
from rlfactory.crossings import RULES
from rlfactory.crossings.base import Rule
from rlfactory.crossings.cautions import cautions

SOUND: dict[str, Any] = {
    "prompts_per_iteration": 4,
    "group_size": 6,
    "updates_per_iteration": 2,
    "branches": 1,
    "branch_at": "window",
    "epochs": 1,
    "micro_batch": 8,
    "times": {"count": 4},
    "schedule": {"steps": 10},
    "window": {"skip_last": 1},
    "prompts": {"_target_": "rlfactory.prompts.shapes.ShapesPrompts"},
    "algo": {},
    "advantage": {"mean": "group", "std": "group", "aggregate": "sum", "weights": None},
    "ema": {"schedule": "warmup_cosine", "warmup": 10, "total": 11},
    "old": {"schedule": "power", "warmup": 10, "total": 10},
    "regularizer": {},
    "dynamics": {"_target_": "rlfactory.dynamics.flow_sde.FlowSDE"},
    "reward": {},
    "eval_rewards": {"of": [], "parts": {}},
    "model": {"path": "owner/name", "size": 64},
    "evaluation": {"size": None},
    "prompt_cache": None,
    "begin_from": None,
    "optimizer": {"lr": 1e-4, "betas": [0.9, 0.999]},
    "precision": {"weights": "bfloat16", "rollout": "bfloat16", "learning": "bfloat16"},
    "memory": {"attention": None},
    "logger": {"of": ["a", "b"]},
    "hardware": {"processes": 2, "strategy": "ddp"},
}
STEPWISE: dict[str, Any] = {
    "algo": {"needs": "transitions"},
    "advantage": {"grouped": True},
    "model": {"media": "images", "process": "flow"},
    "dynamics": {"process": "flow", "log_prob": True},
    "schedule": {"process": "flow"},
    "window": {},
    "regularizer": {"needs": "transitions"},
    "reward": {"media": "images", "metadata": ("include",)},
    "prompts": {"metadata": ("tag", "include")},
    "times": {"of_schedule": True},
    "logger": {"made_of": "parts"},
    "logger.parts.a": {"package": "json", "extra": None},
}


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {**base, **changes}


def keys(rule: Rule, config: dict[str, Any], traits: dict[str, Any]) -> list[str]:
    found = rule(merged(SOUND, config), merged(STEPWISE, traits))
    assert isinstance(found, Iterator)
    return [problem.key for problem in found]


FORWARD = {"algo": {"needs": "forward_process"}}
GAUSSIAN = {"_target_": "rlfactory.regularizer.kl_gaussian.KLGaussian"}


COMPARES: dict[str, Any] = {"media": "texts", "compares_group": True}
TINY: dict[str, Any] = {"model": {"path": "zoo:tiny_sd3", "size": 64}}
WRITER: dict[str, Any] = {"model": {"path": "zoo:tiny_gpt2"}}
FLUX: dict[str, Any] = {"media": "images", "pipeline": "FluxPipeline"}
SD3: dict[str, Any] = {"model": {"media": "images", "pipeline": "StableDiffusion3Pipeline"}}
NOWHERE = {"package": "no_such_package", "extra": "some"}
ZERO: dict[str, Any] = {
    "hardware": {
        **{"zero": 3, "offload": "none", "processes": 2, "device": "auto"},
        "config": None,
    },
    "optimizer": {"_target_": "torch.optim.AdamW"},
    "max_grad_norm": 1.0,
}
SUM: dict[str, Any] = {"regularizer": {"terms": {"a": {}}}}


def terms(traits: dict[str, Any], name: str = "a") -> dict[str, Any]:
    """The traits of a sum of one term."""
    return {"regularizer": {"needs": "terms"}, f"regularizer.terms.{name}": traits}


def parts(of: list[str], **options: Any) -> dict[str, Any]:
    """A reward combined of parts."""
    plain = {"weights": {}, "gates": {}, "clips": {}, "normalise": "none", "aggregate": "sum"}
    return {"reward": {"of": of, "parts": {name: {} for name in of}, **plain, **options}}


ALSO: dict[str, Any] = {"eval_rewards": {"of": ["a"], "parts": {"a": {}}}}
COMBINED: dict[str, Any] = {"reward": {"made_of": "parts"}}
GDPO = {**parts(["a"], aggregate="gdpo"), "advantage": {"aggregate": "gdpo", "weights": None}}
IN_BOTH = {"precision": {"weights": "float32", "rollout": "bfloat16", "learning": "float32"}}
IN_NEITHER = {"precision": {"weights": "float16", "rollout": "bfloat16", "learning": "bfloat16"}}
NO_BACKENDS = {"model": {"media": "images", "attention_backends": False}}

FIRES: list[tuple[Rule, dict[str, Any], dict[str, Any], str]] = [
    (crossings.begins_with_a_run, {"begin_from": "nowhere"}, {}, "begin_from"),
    (crossings.algorithm_fits_model, {}, {"algo": {"needs": "tokens"}}, "algo"),
    (crossings.algorithm_fits_model, {}, {"model": {"process": "tokens"}}, "algo"),
    (crossings.dynamics_fit_model, {}, {"dynamics": {"process": "vp"}}, "dynamics"),
    (
        crossings.dynamics_fit_model,
        {},
        {"model": {"process": "tokens"}, "dynamics": {"process": None}},
        "dynamics",
    ),
    (crossings.schedule_fits_model, {}, {"model": {"process": "vp"}}, "schedule"),
    (crossings.schedule_fits_model, {}, {"schedule": {"process": "vp"}}, "schedule"),
    (crossings.stepwise_needs_likelihood, {}, {"dynamics": {"log_prob": False}}, "dynamics"),
    (
        crossings.last_step_has_noise,
        {"window": {"skip_last": 0}, "dynamics": {"final_alpha": "one", "min_std": 0.0}},
        {},
        "dynamics.final_alpha",
    ),
    (
        crossings.last_step_has_noise,
        {"window": {"steps": [0, 9]}, "dynamics": {"log_prob_of": "gaussian"}},
        {"dynamics": {"quiet_end": True}},
        "dynamics.log_prob_of",
    ),
    (
        crossings.last_step_has_noise,
        {"window": {"size": 2, "low": 0, "high": None}, "regularizer": GAUSSIAN},
        {"dynamics": {"quiet_end": True}},
        "regularizer",
    ),
    (
        crossings.last_step_has_noise,
        {"window": {"size": 2, "low": 8, "high": None}, "regularizer": {"terms": {"a": GAUSSIAN}}},
        {
            "dynamics": {"quiet_end": True},
            "window": {"noisier_half": True},
            "regularizer": {"needs": "terms"},
        },
        "regularizer",
    ),
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
        {"algo": {"needs": "tokens"}},
        "group_size",
    ),
    (
        crossings.groups_have_members,
        {"group_size": 1, "advantage": {"mean": "global", "std": "group"}},
        {},
        "group_size",
    ),
    (
        crossings.groups_have_members,
        {"group_size": 1, "advantage": {"mean": "group", "std": "none"}},
        {},
        "group_size",
    ),
    (
        crossings.groups_have_members,
        {
            "group_size": 1,
            "advantage": {"mean": "global", "std": "global", "aggregate": "gdpo"},
        },
        {},
        "group_size",
    ),
    (crossings.groups_have_members, {"group_size": 1, "advantage": {}}, {}, "group_size"),
    (crossings.weights_weigh, {"advantage": {"weights": {}}}, {}, "advantage.weights"),
    (
        crossings.weights_weigh,
        {"advantage": {"weights": {"a": 0.0, "b": 0}}},
        {},
        "advantage.weights",
    ),
    (
        crossings.buffers_fill,
        {"advantage": {"buffer_size": 15, "min_count": 16}},
        {},
        "advantage.min_count",
    ),
    (
        crossings.averages_have_time,
        {"old": {"schedule": "warmup_cosine", "warmup": 10, "total": 10}},
        {},
        "old.warmup",
    ),
    (crossings.branches_grow, {"branches": 4}, {}, "branches"),
    (crossings.branches_grow, {"branches": 2}, FORWARD, "branches"),
    (crossings.branches_grow, {"branch_at": "step", "branches": 2}, {}, "branches"),
    (
        crossings.branches_grow,
        {"branch_at": "step", "window": {"size": 6}},
        {},
        "branches",
    ),
    (crossings.derived_for_dynamics, {}, {"algo": {"only_dynamics": "CPS"}}, "dynamics"),
    (
        crossings.derived_for_dynamics,
        {},
        {"algo": {"only_dynamics": "CPS"}, "model": {"process": "vp"}},
        "algo",
    ),
    (
        crossings.one_update_on_policy,
        {},
        {"algo": {"on_policy": True}},
        "updates_per_iteration",
    ),
    (
        crossings.one_update_on_policy,
        {"updates_per_iteration": 1, "epochs": 2},
        {"algo": {"on_policy": True}},
        "updates_per_iteration",
    ),
    (
        crossings.samples_stay_whole,
        {"micro_batch": 3},
        {"algo": {"whole_samples": True}},
        "micro_batch",
    ),
    (
        crossings.samples_stay_whole,
        {"micro_batch": 3, "algo": {"ratio": "sum_first"}},
        {},
        "micro_batch",
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
    (
        crossings.window_within_steps,
        {"window": {"size": 9, "low": 0, "high": None}},
        {"window": {"margin": 2}},
        "window.size",
    ),
    (
        crossings.window_within_steps,
        {"window": {"size": 1, "low": 8, "high": None}},
        {"window": {"margin": 2}},
        "window.low",
    ),
    (crossings.window_within_steps, {"window": {"size": 1, "low": 5, "high": 5}}, {}, "window.low"),
    (crossings.times_within_steps, {"times": {"count": 11}}, FORWARD, "times.count"),
    (
        crossings.times_within_steps,
        {"times": {"count": 10, "fraction": 0.99, "space": "index"}},
        FORWARD,
        "times.count",
    ),
    (
        crossings.times_within_steps,
        {"times": {"count": 9, "fraction": 0.99, "space": "index", "first": "never"}},
        FORWARD,
        "times.count",
    ),
    (
        crossings.times_within_steps,
        {"times": {"count": 10, "fraction": 1.0, "space": "sigma"}},
        FORWARD,
        "times.count",
    ),
    (
        crossings.times_within_steps,
        {"times": {"count": 1, "fraction": 0.05, "space": "index"}},
        FORWARD,
        "times.count",
    ),
    (crossings.times_within_steps, {"times": {"low": 0.5, "high": 0.5}}, FORWARD, "times.low"),
    (crossings.reward_judges_what_is_made, {}, {"reward": {"media": "texts"}}, "reward"),
    (crossings.rewards_have_company, {"group_size": 1}, {"reward": COMPARES}, "group_size"),
    (crossings.rewards_have_company, {"group_size": 1}, {"reward.parts.a": COMPARES}, "group_size"),
    (
        crossings.reward_judges_what_is_made,
        parts(["a", "b"]),
        {
            **COMBINED,
            "reward.parts.a": {"media": "images"},
            "reward.parts.b": {"media": "texts"},
        },
        "reward.parts.b",
    ),
    (
        crossings.reward_judges_what_is_made,
        ALSO,
        {"eval_rewards.parts.a": {"media": "texts"}},
        "eval_rewards.parts.a",
    ),
    (
        crossings.prompts_bring_metadata,
        parts(["a"]),
        {**COMBINED, "reward.parts.a": {"metadata": ("words",)}},
        "prompts",
    ),
    (
        crossings.prompts_bring_metadata,
        ALSO,
        {"eval_rewards.parts.a": {"metadata": ("words",)}},
        "prompts",
    ),
    (crossings.parts_are_rewards, parts([]), COMBINED, "reward.of"),
    (crossings.parts_are_rewards, parts(["a", "a"]), COMBINED, "reward.of"),
    (crossings.parts_are_rewards, parts(["combined"]), COMBINED, "reward.of"),
    (
        crossings.parts_are_rewards,
        ALSO,
        {"eval_rewards.parts.a": {"made_of": "parts"}},
        "eval_rewards.parts.a",
    ),
    (crossings.parts_are_named, parts(["a"], weights={"b": 1}), COMBINED, "reward.weights.b"),
    (
        crossings.parts_are_named,
        parts(["a"], normalise={"b": "none"}),
        COMBINED,
        "reward.normalise.b",
    ),
    (crossings.parts_are_named, parts(["a"], gates={"a": {"b": 1}}), COMBINED, "reward.gates.a.b"),
    (crossings.parts_count, parts(["a"], weights={"a": 0}), COMBINED, "reward.weights"),
    (crossings.clips_have_order, parts(["a"], clips={"a": [1, 0]}), COMBINED, "reward.clips.a"),
    (crossings.advantage_sums_parts, parts(["a"], aggregate="gdpo"), COMBINED, "advantage"),
    (
        crossings.advantage_sums_parts,
        GDPO,
        {**COMBINED, "algo": {"needs": "tokens"}},
        "reward.aggregate",
    ),
    (
        crossings.advantage_sums_parts,
        {**GDPO, "advantage": {"aggregate": "gdpo", "weights": {"a": 1}}},
        COMBINED,
        "advantage.weights",
    ),
    (crossings.prompts_bring_metadata, {}, {"prompts": {"metadata": ("tag",)}}, "prompts"),
    (
        crossings.prompt_files_are_readable,
        {"prompts": {"_target_": "x.FilePrompts", "path": "/no/where.txt"}},
        {},
        "prompts.path",
    ),
    (crossings.optimizer_moves, {"optimizer": {"lr": 0.0}}, {}, "optimizer.lr"),
    (crossings.replay_computes_alike, IN_BOTH, {}, "precision.rollout"),
    (crossings.frozen_weights_suffice, IN_NEITHER, {}, "precision.weights"),
    (
        crossings.frozen_weights_suffice,
        {"precision": {"weights": "bfloat16", "rollout": "bfloat16", "learning": "float32"}},
        {},
        "precision.weights",
    ),
    (crossings.attention_is_known, {"memory": {"attention": "flsh"}}, {}, "memory.attention"),
    (crossings.processes_share_groups, {"hardware": {"processes": 3}}, {}, "hardware.processes"),
    *(
        (
            crossings.divided_networks_train_whole,
            {"hardware": {"strategy": "fsdp2"}, **changes},
            {},
            "hardware.strategy",
        )
        for changes in (
            {"model": {"finetune": "lora"}},
            {"model": {"value_path": "owner/name"}},
            {"precision": {"learning": "float16"}},
        )
    ),
    (crossings.deepspeed_is_there, {}, {"hardware": NOWHERE}, "hardware"),
    (crossings.zero_divides, {**ZERO, "precision": {"learning": "float16"}}, {}, "hardware"),
    (crossings.zero_divides, {**ZERO, "optimizer": {"_target_": "b.Adam"}}, {}, "optimizer"),
    *(
        (crossings.zero_divides, {**ZERO, "model": changes}, {}, "hardware.zero")
        for changes in ({"finetune": "lora"}, {"value_path": "owner/name"})
    ),
    (
        crossings.pasted_agrees,
        {**ZERO, "hardware": {**ZERO["hardware"], "config": "/no/where.yaml"}},
        {},
        "hardware.config",
    ),
    (
        crossings.attention_is_known,
        {"memory": {"attention": "native"}},
        NO_BACKENDS,
        "memory.attention",
    ),
    (
        crossings.guidance_guides,
        {"model": {"guidance": 1.0, "negative_prompt": "dull"}},
        {},
        "model.guidance",
    ),
    (crossings.guidance_guides, {"model": {"guidance": 0.5}}, {}, "model.guidance"),
    (crossings.optimizer_moves, {"optimizer": {"betas": [0.9, 1.0]}}, {}, "optimizer.betas"),
    (crossings.optimizer_moves, {"optimizer": {"momentum": -0.1}}, {}, "optimizer.momentum"),
    (crossings.window_within_steps, {"window": {"size": 1, "low": 10}}, {}, "window.low"),
    (crossings.model_folders_hold_models, {"model": {"path": "./nowhere"}}, {}, "model.path"),
    (crossings.model_folders_hold_models, TINY, {"model": FLUX}, "model.path"),
    (crossings.model_folders_hold_models, WRITER, {"model": FLUX}, "model.path"),
    (crossings.model_folders_hold_models, TINY, {"model": {"media": "texts"}}, "model.path"),
    (crossings.sizes_divide, {"model": {**TINY["model"], "size": 60}}, SD3, "model.size"),
    (crossings.sizes_divide, {**TINY, "evaluation": {"size": 68}}, SD3, "evaluation.size"),
    (
        crossings.guidance_fits_network,
        {"model": {**TINY["model"], "embedded_guidance": 3.5}},
        {},
        "model.embedded_guidance",
    ),
    (crossings.prompt_cache_is_a_folder, {"prompt_cache": __file__}, {}, "prompt_cache"),
    (crossings.parts_are_loggers, {"logger": {"of": []}}, {}, "logger.of"),
    (crossings.parts_are_loggers, {"logger": {"of": ["a", "a"]}}, {}, "logger.of"),
    (crossings.parts_are_loggers, {}, {"logger.parts.a": {"made_of": "parts"}}, "logger.parts.a"),
    (crossings.loggers_are_there, {}, {"logger.parts.b": NOWHERE}, "logger.parts.b"),
    (crossings.loggers_are_there, {"logger": {}}, {"logger": NOWHERE}, "logger"),
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


NOISELESS = {"final_alpha": "one", "min_std": 0.0, "log_prob_of": "gaussian"}

SILENT: list[tuple[Rule, dict[str, Any], dict[str, Any]]] = [
    (crossings.branches_grow, {"branches": 3}, {}),
    (crossings.model_folders_hold_models, TINY, SD3),
    (crossings.model_folders_hold_models, WRITER, {"model": {"media": "texts"}}),
    (crossings.sizes_divide, {**TINY, "evaluation": {"size": 32}}, SD3),
    (crossings.sizes_divide, {"model": {**TINY["model"], "size": 60}}, {}),
    (crossings.guidance_fits_network, {"model": {**TINY["model"], "embedded_guidance": None}}, {}),
    (crossings.prompt_cache_is_a_folder, {"prompt_cache": str(Path(__file__).parent)}, {}),
    (crossings.branches_grow, {"branches": 6}, {}),
    (crossings.branches_grow, {"branch_at": "step", "branches": 2, "window": {"size": 3}}, {}),
    (crossings.derived_for_dynamics, {}, {"algo": {"only_dynamics": "FlowSDE"}}),
    (
        crossings.derived_for_dynamics,
        {},
        {"algo": {"only_dynamics": "CPS"}, "dynamics": {"log_prob": False}},
    ),
    (
        crossings.one_update_on_policy,
        {"updates_per_iteration": 1},
        {"algo": {"on_policy": True}},
    ),
    (crossings.samples_stay_whole, {"micro_batch": 4}, {"algo": {"whole_samples": True}}),
    (crossings.samples_stay_whole, {"micro_batch": 3}, {}),
    (crossings.groups_have_members, {"group_size": 1}, {"algo": {"needs": "tokens"}}),
    (crossings.groups_have_members, {"group_size": 1}, {"advantage": {"grouped": False}}),
    *(
        (
            crossings.groups_have_members,
            {"group_size": 1, "advantage": {"mean": "global", "std": std, "aggregate": "sum"}},
            {},
        )
        for std in ("global", "none")
    ),
    (crossings.weights_weigh, {"advantage": {"weights": {"a": 0, "b": -1}}}, {}),
    (crossings.buffers_fill, {"advantage": {"buffer_size": 16, "min_count": 16}}, {}),
    (crossings.divergence_teaches, {"regularizer": {"placement": "reward", "estimator": "k1"}}, {}),
    (
        crossings.window_within_steps,
        {"window": {"steps": [99]}},
        {"algo": {"needs": "forward_process"}},
    ),
    (crossings.window_within_steps, {"window": {"size": 2, "low": 8, "high": 10}}, {}),
    (crossings.window_within_steps, {"window": {"size": 10, "low": 0, "high": None}}, {}),
    (
        crossings.window_within_steps,
        {"window": {"size": 8, "low": 0, "high": None}},
        {"window": {"margin": 2}},
    ),
    (
        crossings.window_within_steps,
        {"window": {"size": 10, "low": 0, "high": 10}},
        {"window": {"margin": 2}},
    ),
    (crossings.times_within_steps, {"times": {"count": 10}}, FORWARD),
    (
        crossings.times_within_steps,
        {"times": {"count": 9, "fraction": 0.99, "space": "index", "first": "always"}},
        FORWARD,
    ),
    (crossings.times_within_steps, {"times": {"count": 9, "space": "sigma"}}, FORWARD),
    (crossings.times_within_steps, {"times": {"count": 99}}, merged(FORWARD, {"times": {}})),
    (crossings.times_within_steps, {"times": {"count": 99, "low": 0.9, "high": 0.1}}, {}),
    (crossings.times_within_steps, {"times": {"low": 0.2, "high": 1.0}}, FORWARD),
    (crossings.prompts_bring_metadata, {}, {"prompts": {"metadata": None}}),
    (crossings.prompts_bring_metadata, {}, {"reward": {"media": "images"}}),
    (crossings.reward_judges_what_is_made, {}, {"reward": {}}),
    (crossings.rewards_have_company, {"group_size": 2}, {"reward": COMPARES}),
    (crossings.rewards_have_company, {"group_size": 1}, {"rewards": COMPARES}),
    (crossings.rewards_have_company, {"group_size": 1}, {}),
    (crossings.advantage_sums_parts, GDPO, COMBINED),
    (crossings.parts_count, parts(["a", "b"], weights={"a": 0}), COMBINED),
    (crossings.parts_count, parts(["a"], weights=None), COMBINED),
    (crossings.clips_have_order, parts(["a"], clips={"a": [None, 0]}), COMBINED),
    (crossings.parts_are_named, parts(["a", "b"], gates={"a": {"b": 1}}), COMBINED),
    (crossings.stepwise_needs_likelihood, {}, {"algo": {}, "dynamics": {}}),
    (crossings.dynamics_fit_model, {}, {"dynamics": {}, "model": {"process": "tokens"}}),
    (crossings.dynamics_fit_model, {}, {"dynamics": {"process": None}}),
    (crossings.dynamics_fit_model, {}, {"dynamics": {"process": None}, "model": {"process": "vp"}}),
    (crossings.schedule_fits_model, {}, {"model": {"process": "tokens"}}),
    (crossings.schedule_fits_model, {}, {"model": {}}),
    (crossings.schedule_fits_model, {}, {"schedule": {}}),
    *(
        (
            crossings.last_step_has_noise,
            {"window": window, "dynamics": NOISELESS, "regularizer": GAUSSIAN},
            {"dynamics": {"quiet_end": True}, "window": traits},
        )
        for window, traits in (
            ({"skip_last": 1}, {}),
            ({"steps": [0, 8]}, {}),
            ({"size": 2, "low": 0, "high": 9}, {}),
            ({"size": 2, "low": 0, "high": None}, {"margin": 2}),
            ({"size": 2, "low": 0, "high": None}, {"noisier_half": True}),
        )
    ),
    (
        crossings.last_step_has_noise,
        {"window": {"skip_last": 0}, "dynamics": {"final_alpha": "one", "min_std": 1e-6}},
        {},
    ),
    (
        crossings.last_step_has_noise,
        {"window": {"skip_last": 0}, "dynamics": {"final_alpha": "first", "min_std": 0.0}},
        {},
    ),
    (crossings.last_step_has_noise, {"window": {"skip_last": 0}, "regularizer": GAUSSIAN}, {}),
    (
        crossings.last_step_has_noise,
        {"window": {"skip_last": 0}, "dynamics": NOISELESS, "regularizer": GAUSSIAN},
        {"dynamics": {"quiet_end": True}, "algo": {"needs": "forward_process"}},
    ),
    (
        crossings.last_step_has_noise,
        {"window": {"skip_last": 0}, "dynamics": {"log_prob_of": "quadratic"}},
        {"dynamics": {"quiet_end": True}},
    ),
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
    (crossings.replay_computes_alike, IN_BOTH, FORWARD),
    (crossings.frozen_weights_suffice, IN_BOTH, {}),
    (crossings.frozen_weights_suffice, IN_NEITHER, {"model": {"media": "texts"}}),
    (crossings.attention_is_known, {"memory": {"attention": "_native_flash"}}, {}),
    (crossings.attention_is_known, {"memory": {"attention": "x"}}, {"model": {"media": "texts"}}),
    (crossings.guidance_guides, {"model": {"guidance": 1.0, "negative_prompt": ""}}, {}),
    (crossings.processes_share_groups, {"hardware": {}}, {}),
    (crossings.divided_networks_train_whole, {"hardware": {"strategy": "fsdp2"}}, {}),
    (crossings.deepspeed_is_there, {}, {"hardware": {"package": "json", "extra": None}}),
    (crossings.deepspeed_is_there, {}, {"hardware": {}}),
    (crossings.zero_divides, ZERO, {}),
    (crossings.zero_divides, {"precision": {"learning": "float16"}}, {}),
    (
        crossings.zero_divides,
        {**ZERO, "hardware": {**ZERO["hardware"], "zero": 2}, "model": {"finetune": "lora"}},
        {},
    ),
    (crossings.pasted_agrees, ZERO, {}),
    (crossings.divided_networks_train_whole, {"model": {"finetune": "lora"}}, {}),
    (crossings.parts_are_loggers, {"logger": {}}, {"logger": {}}),
    (crossings.loggers_are_there, {"logger": {}}, {"logger": {"package": None}}),
    (crossings.guidance_guides, {"model": {"guidance": 0.0, "negative_prompt": ""}}, {}),
    (crossings.guidance_guides, {"model": {"guidance": 4.5, "negative_prompt": "dull"}}, {}),
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


def folder_with(place: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(json.dumps(content))
    return place


VAE = {"vae/config.json": {"block_out_channels": [128, 256, 512, 512]}}


@pytest.mark.parametrize(
    ("pipeline", "option"),
    [
        ("FluxPipeline", "flux"),
        ("FluxImg2ImgPipeline", "flux"),
        ("StableDiffusionPipeline", "sd14"),
        ("StableDiffusionInpaintPipeline", "sd14"),
        ("StableDiffusionXLPipeline", None),
        ("Flux2Pipeline", None),
    ],
)
def test_a_folder_of_another_family_is_given_its_own_command(
    tmp_path: Path, pipeline: str, option: str | None
) -> None:
    folder = folder_with(tmp_path, {"model_index.json": {"_class_name": pipeline}})
    config = merged(SOUND, {"model": {"path": str(folder)}})
    (problem,) = crossings.model_folders_hold_models(config, merged(STEPWISE, SD3))
    assert pipeline.replace("Img2Img", "").replace("Inpaint", "") in problem.message
    assert problem.remedy == (f"rlfactory model={option} model.path={folder}" if option else "")


@pytest.mark.parametrize(
    ("pipeline", "files", "size", "nearest"),
    [
        ("StableDiffusionPipeline", {}, 500, (496, "496 and 504")),
        ("FluxPipeline", {}, 520, (512, "512 and 528")),
        ("FluxPipeline", {}, 8, (16, "16")),
        (
            "StableDiffusion3Pipeline",
            {"transformer/config.json": {"patch_size": 2, "pos_embed_max_size": 96}},
            1600,
            (1536, "1536"),
        ),
    ],
)
def test_the_nearest_sizes_are_named(
    tmp_path: Path, pipeline: str, files: dict[str, Any], size: int, nearest: tuple[int, str]
) -> None:
    folder = folder_with(tmp_path, VAE | files)
    config = merged(SOUND, {"model": {"path": str(folder), "size": size}})
    traits = merged(STEPWISE, {"model": {"pipeline": pipeline}})
    (problem,) = crossings.sizes_divide(config, traits)
    assert problem.message.endswith(f"nearest {nearest[1]}")
    assert problem.remedy == f"model.size={nearest[0]}"
    again = merged(SOUND, {"model": {"path": str(folder), "size": nearest[0]}})
    assert list(crossings.sizes_divide(again, traits)) == []


@pytest.mark.parametrize(("takes", "given"), [(True, None), (False, 3.5)])
def test_guidance_is_what_the_network_takes(
    tmp_path: Path, takes: bool, given: float | None
) -> None:
    folder = folder_with(tmp_path, {"transformer/config.json": {"guidance_embeds": takes}})
    model = {"path": str(folder), "embedded_guidance": given}
    (problem,) = crossings.guidance_fits_network(merged(SOUND, {"model": model}), STEPWISE)
    remedy = problem.remedy.partition("=")[2]
    mended = {**model, "embedded_guidance": None if remedy == "null" else float(remedy)}
    assert list(crossings.guidance_fits_network(merged(SOUND, {"model": mended}), STEPWISE)) == []


@pytest.mark.parametrize("cached", [True, False])
def test_a_hub_id_must_be_here_where_no_network_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if cached:
        kept = tmp_path / "models--owner--name"
        (kept / "snapshots" / "abc").mkdir(parents=True)
        (kept / "refs").mkdir()
        (kept / "refs" / "main").write_text("abc")
    problems = list(crossings.model_folders_hold_models(SOUND, merged(STEPWISE, SD3)))
    assert len(problems) == (0 if cached else 1)
    for problem in problems:
        assert "HF_HUB_OFFLINE is set" in problem.message
        assert "hf auth login" in problem.message


def test_what_a_fetched_model_says_of_itself_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--owner--name" / "snapshots" / "abc"
    folder_with(folder, VAE | {"model_index.json": {"_class_name": "FluxPipeline"}})
    (tmp_path / "models--owner--name" / "refs").mkdir()
    (tmp_path / "models--owner--name" / "refs" / "main").write_text("abc")
    config = merged(SOUND, {"model": {"path": "owner/name", "size": 60}})
    assert keys(crossings.model_folders_hold_models, config, SD3) == ["model.path"]
    assert keys(crossings.sizes_divide, config, {"model": FLUX}) == ["model.size"]


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
    assert len(list(cautions(config, STEPWISE))) == count


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
    assert len(list(cautions(config, STEPWISE))) == count


@pytest.mark.parametrize(
    ("process", "needs", "remedy"),
    [
        ("vp", "transitions", "dynamics=ddim"),
        ("vp", "forward_process", "dynamics=ode"),
        ("tokens", "tokens", "dynamics=token"),
    ],
)
def test_dynamics_that_fit_are_proposed(process: str, needs: str, remedy: str) -> None:
    traits = merged(STEPWISE, {"model": {"process": process}, "algo": {"needs": needs}})
    (problem,) = crossings.dynamics_fit_model(SOUND, traits)
    assert problem.remedy == remedy
    back = merged(STEPWISE, {"dynamics": {"process": "vp"}})
    (problem,) = crossings.dynamics_fit_model(SOUND, back)
    assert problem.remedy == "dynamics=flow_sde"


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
    found = list(cautions(config, merged(STEPWISE, kind)))
    assert len(found) == count
    assert all("wandered" in text for text in found)


@pytest.mark.parametrize(("name", "count"), [("a", 1), ("reference", 0)])
def test_a_sum_without_a_reference_stops_no_run(name: str, count: int) -> None:
    stop = {"stop": {"kl": 0.1, "reward": None}, "evaluation": {"every": 10}, "dynamics": {}}
    config = {"regularizer": {"terms": {name: {}}}, **stop}
    assert len(list(cautions(config, merged(STEPWISE, terms({}, name))))) == count


@pytest.mark.parametrize(
    ("needs", "log_prob", "count"),
    [("forward_process", True, 1), ("forward_process", False, 0), ("transitions", True, 0)],
)
def test_noise_that_teaches_nothing_is_noted(needs: str, log_prob: bool, count: int) -> None:
    calm = {"stop": {"kl": None, "reward": None}, "evaluation": {"every": 0}}
    traits = {"algo": {"needs": needs}, "dynamics": {"log_prob": log_prob}}
    found = list(cautions(merged(SOUND, calm), merged(STEPWISE, traits)))
    assert len(found) == count
    assert all("dynamics=ode" in text for text in found)


BEGUN = "model: {_target_: rlfactory.model.sd3.TinySD3, finetune: lora}\n"


@pytest.mark.parametrize(
    ("config", "has_checkpoint", "said"),
    [
        (BEGUN, True, ""),
        (BEGUN, False, "no checkpoint yet"),
        ("", True, "no run folder"),
        ("[", True, "no run folder"),
        (BEGUN.replace("sd3", "sd"), True, "_target_ is rlfactory.model.sd.TinySD3"),
        (BEGUN.replace("lora", "full"), True, "finetune is full, and here it is lora"),
    ],
)
def test_a_run_to_begin_with_is_one_of_the_same_model(
    tmp_path: Path, config: str, has_checkpoint: bool, said: str
) -> None:
    (tmp_path / "config.yaml").write_text(config)
    if has_checkpoint:
        (tmp_path / "checkpoints" / "step_000001").mkdir(parents=True)
    ours = {"_target_": "rlfactory.model.sd3.TinySD3", "finetune": "lora"}
    found = [*crossings.begins_with_a_run({"begin_from": str(tmp_path), "model": ours}, {})]
    assert [p.key for p in found] == (["begin_from"] if said else [])
    assert all(said in p.message for p in found)


@pytest.mark.parametrize(
    ("count", "near", "remedy"),
    [(3, "1, 2, 4", 2), (5, "2, 4, 8", 4), (16, "2, 4, 8", 8), (8, None, None)],
)
def test_the_processes_that_are_proposed_divide(
    count: int, near: str | None, remedy: int | None
) -> None:
    config = merged(SOUND, {"hardware": {"processes": count}, "prompts_per_iteration": 8})
    problems = list(crossings.processes_share_groups(config, STEPWISE))
    assert len(problems) == (near is not None)
    for problem in problems:
        assert f"the 8 groups of an iteration; nearest are {near}, or" in problem.message
        assert problem.remedy == f"hardware.processes={remedy}"


def test_a_pasted_configuration_is_compared_with_all_that_it_is_about(tmp_path: Path) -> None:
    node = {"num_processes": 8, "deepspeed_config": {"gradient_accumulation_steps": 1}}
    (tmp_path / "a.yaml").write_text(json.dumps(node))
    hardware = {**ZERO["hardware"], "config": str(tmp_path / "a.yaml")}
    config = merged(SOUND, {**ZERO, "hardware": hardware})
    # 4 groups x 6 in 2 updates are 12 samples of 9 steps; a micro-batch of 8 is one of 8 items
    found = [*crossings.pasted_agrees(config, STEPWISE)]
    assert [problem.key for problem in found] == ["hardware.processes", "micro_batch"]
    assert "is 8, which makes 7 in each process" in found[1].message
