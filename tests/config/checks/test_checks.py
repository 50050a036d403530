"""Each rule between choices fires where it should and is silent elsewhere."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rlfactory.algo.flow_dppo import FlowDPPO
from rlfactory.config import checks
from rlfactory.config.checks.base import Config, Rule, Traits, unread_groups
from rlfactory.config.checks.rules import RULES, require_valid_options, validated
from rlfactory.config.checks.warnings import cautions
from rlfactory.config.problems import Problem

SOUND: dict[str, Any] = {
    "prompts_per_iteration": 4,
    "group_size": 6,
    "updates_per_iteration": 2,
    "branches": 1,
    "branch_at": "window",
    "tree": {"splits": [], "noise_scale": 1.0},
    "shares": "random",
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
    "eval_sets": {"of": [], "parts": {}, "rewards": {}, "counts": {}},
    "model": {"path": "owner/name", "size": 64},
    "evaluation": {"size": None},
    "prompt_cache": None,
    "run_dir": None,
    "begin_from": None,
    "optimizer": {"lr": 1e-4, "betas": [0.9, 0.999]},
    "precision": {"weights": "bfloat16", "rollout": "bfloat16", "learning": "bfloat16"},
    "memory": {"attention": None},
    "logger": {"of": ["a", "b"]},
    "hardware": {"processes": 2, "strategy": "ddp"},
    "engine": {},
    "scoring": {"offload": False, "background": "none"},
}


def added_token() -> str:
    """The folder of a model with five rows, whose tokenizer has a token more."""
    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text('{"vocab_size": 5}')
    added = [{"id": 4, "content": "be"}, {"id": 5, "content": "<new>"}]
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": added, "model": {}}))
    return str(folder)


def long_prompt() -> str:
    """A file with a text of more tokens than `tiny_gpt2` has places for."""
    file = Path(tempfile.mkdtemp()) / "long.txt"
    file.write_text("a film " * 300)
    return str(file)


WHOLE = {"top_k": 0, "top_p": 1.0, "stop_after": 0, "temperature": 1.0, "log_prob_of": "full"}
ENGINE: dict[str, Any] = {"engine": {"draws_by": "engine"}, "model": {"process": "tokens"}}
TREE: dict[str, Any] = {"branch_at": "tree", "branches": 4, "tree": {"splits": [0, 2]}}
BEYOND: dict[str, Any] = {**TREE, "tree": {"splits": [0, 10]}}
TWICE: dict[str, Any] = {**TREE, "tree": {"splits": [2, 2]}}
BRANCHING = {"algo": {"trains_tree": True}}
STEPWISE: dict[str, Any] = {
    "algo": {"requires": "transitions"},
    "engine": {"draws_by": "model"},
    "advantage": {"grouped": True},
    "model": {"media": "images", "process": "flow"},
    "dynamics": {"process": "flow", "has_log_prob": True, "step_form": "flow_sde"},
    "schedule": {"process": "flow"},
    "window": {},
    "regularizer": {"requires": "transitions"},
    "reward": {"media": "images", "metadata": ("include",)},
    "prompts": {"metadata": ("tag", "include")},
    "times": {"from_schedule": True},
    "logger": {"made_of": "parts"},
    "logger.parts.a": {"package": "json", "extra": None},
}


OF_DATA: tuple[dict[str, Any], dict[str, Any]] = (
    {"algo": {"column": "include"}},
    {
        "algo": {"requires": "tokens", "samples_from": "data"},
        "model": {"media": "texts", "process": "tokens"},
        "regularizer": {"requires": "nothing"},
    },
)
"""The column is one that the prompts have."""
OF_PAIRS: dict[str, Any] = {
    **OF_DATA[1],
    "algo": {**OF_DATA[1]["algo"], "learns_from_pairs": True},
}


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {**base, **changes}


def keys(rule: Rule, config: dict[str, Any], traits: dict[str, Any]) -> list[str]:
    found = rule(merged(SOUND, config), merged(STEPWISE, traits))
    assert isinstance(found, Iterator)
    return [problem.key for problem in found]


def options_of(target: str, key: str) -> Rule:
    """The rule on a component's own options, which stands beside it."""

    def rule(config: Config, traits: Traits) -> Iterator[Problem]:
        node = {**config[key], "_target_": f"rlfactory.{target}"}
        own = {**config, key: node}
        return iter(()) if key in unread_groups(traits) else validated(key, own, traits)

    return rule


PPO_OPTIONS = options_of("algo.ppo.PPO", "algo")
SPACED_LEADING = options_of("dynamics.schedule.Leading", "schedule")
SPACED_TRAILING = options_of("dynamics.schedule.Trailing", "schedule")
TREE_OPTIONS = options_of("algo.branch_grpo.BranchGRPO", "algo")
WEIGHTS = options_of("algo.advantage.group.GroupAdvantage", "advantage")
TRACKER = options_of("algo.advantage.tracker.PromptTracker", "advantage")
WINDOW = options_of("dynamics.window.Window", "window")
TIMES = options_of("algo.times.Times", "times")
PROCESSES = options_of("hardware.distributed.Distributed", "hardware")
PARTS = options_of("reward.combine.Combine", "reward")
DRAWING = options_of("engine.base.Engine", "engine")
TOKENS = options_of("dynamics.token.Token", "dynamics")
PENALTY = options_of("regularizer.kl_token.KLToken", "regularizer")


LEADING = "rlfactory.dynamics.schedule.Leading"
FORWARD = {"algo": {"requires": "forward_process"}}
GAUSSIAN: dict[str, Any] = {"divides_by_step_std": True}
NO_LAST_NOISE: dict[str, Any] = {
    "dynamics": {"last_step_is_deterministic": True},
    "regularizer": GAUSSIAN,
}


OF_QUOTES: dict[str, Any] = {"reward": {"prompt_feature": "quoted_word"}}
COMPARES: dict[str, Any] = {"media": "texts", "compares_group": True}
TINY: dict[str, Any] = {"model": {"path": "zoo:tiny_sd3", "size": 64}}
WRITER: dict[str, Any] = {"model": {"path": "zoo:tiny_gpt2"}}
FLUX: dict[str, Any] = {"media": "images", "pipeline": "FluxPipeline"}
SD3: dict[str, Any] = {"model": {"media": "images", "pipeline": "StableDiffusion3Pipeline"}}
NOWHERE = {"package": "no_such_package", "extra": "some"}
SUM: dict[str, Any] = {"regularizer": {"terms": {"a": {}}}}


def terms(traits: dict[str, Any], name: str = "a") -> dict[str, Any]:
    """The traits of a sum of one term."""
    return {"regularizer": {"requires": "terms"}, f"regularizer.terms.{name}": traits}


def parts(of: list[str], **options: Any) -> dict[str, Any]:
    """A reward combined of parts."""
    plain = {"weights": {}, "gates": {}, "clips": {}, "normalise": "none", "aggregate": "sum"}
    return {"reward": {"of": of, "parts": {name: {} for name in of}, **plain, **options}}


def sets(of: list[str], **options: Any) -> dict[str, Any]:
    """Further prompt sets of evaluations."""
    plain = {"rewards": {}, "counts": {}}
    return {"eval_sets": {"of": of, "parts": {name: {} for name in of}, **plain, **options}}


ALSO: dict[str, Any] = {"eval_rewards": {"of": ["a"], "parts": {"a": {}}}}
COMBINED: dict[str, Any] = {"reward": {"made_of": "parts"}}
GDPO = {**parts(["a"], aggregate="gdpo"), "advantage": {"aggregate": "gdpo", "weights": None}}
IN_BOTH = {"precision": {"weights": "float32", "rollout": "bfloat16", "learning": "float32"}}
IN_NEITHER = {"precision": {"weights": "float16", "rollout": "bfloat16", "learning": "bfloat16"}}
NO_BACKENDS = {"model": {"media": "images", "attention_backends": False}}

PICTURED = str(Path(__file__).parents[2] / "data" / "no_picture.jsonl")
"""A prompt without a picture."""


def video_folder() -> str:
    """A folder that says what a pipeline of videos says, with two transformers, one quantised."""
    folder = Path(tempfile.mkdtemp())
    (folder / "vae").mkdir()
    autoencoder = {"temperal_downsample": [False, True, True]}
    (folder / "vae" / "config.json").write_text(json.dumps(autoencoder))
    (folder / "model_index.json").write_text(json.dumps({"transformer_2": ["diffusers", "X"]}))
    (folder / "transformer").mkdir()
    quantised = {"quantization_config": {"quant_method": "bitsandbytes"}}
    (folder / "transformer" / "config.json").write_text(json.dumps(quantised))
    return str(folder)


VIDEO = {"path": video_folder()}
FIRES: list[tuple[Rule, dict[str, Any], dict[str, Any], str]] = [
    (
        checks.model_files.require_possible_frames,
        {"model": {**VIDEO, "frames": 6}},
        {},
        "model.frames",
    ),
    (checks.model_files.require_own_transformers, {"model": VIDEO}, {}, "model.path"),
    (checks.model_files.require_plain_weights, {"model": VIDEO}, {}, "model.path"),
    (
        checks.sampling.require_pure_noise_at_the_start,
        {"schedule": {"kind": "dpm"}},
        {"dynamics": {"step_form": "flow_sde"}},
        "schedule.kind",
    ),
    (
        checks.sampling.require_sound_on_few_steps,
        {"distilled_to": 4},
        {"algo": {"requires": "forward_process"}},
        "algo",
    ),
    (checks.model_files.require_compatible_run, {"begin_from": "nowhere"}, {}, "begin_from"),
    (checks.optimisation.require_matching_algorithm, {}, {"algo": {"requires": "tokens"}}, "algo"),
    (checks.optimisation.require_matching_algorithm, {}, {"model": {"process": "tokens"}}, "algo"),
    (checks.sampling.require_matching_dynamics, {}, {"dynamics": {"process": "vp"}}, "dynamics"),
    (
        checks.sampling.require_matching_dynamics,
        {},
        {"dynamics": {}, "model": {"process": "tokens"}},
        "dynamics.length",
    ),
    (
        checks.sampling.require_matching_dynamics,
        {},
        {
            "model": {"process": "tokens"},
            "dynamics": {"process": None},
            "algo": {"requires": "tokens"},
        },
        "dynamics",
    ),
    (checks.sampling.require_matching_schedule, {}, {"model": {"process": "vp"}}, "schedule"),
    (checks.sampling.require_matching_schedule, {}, {"schedule": {"process": "vp"}}, "schedule"),
    *(
        (
            rule,
            {"schedule": schedule, "evaluation": {"steps": evaluated}},
            {},
            key,
        )
        for rule, schedule, evaluated, key in (
            (SPACED_LEADING, {"steps": 1000, "steps_offset": 1}, None, "schedule.steps"),
            (SPACED_LEADING, {"steps": 501, "steps_offset": 500}, None, "schedule.steps"),
            (SPACED_TRAILING, {"steps": 667}, None, "schedule.steps"),
            (SPACED_TRAILING, {"steps": 50}, 1001, "evaluation.steps"),
        )
    ),
    (
        checks.sampling.require_step_likelihood,
        {},
        {"dynamics": {"has_log_prob": False}},
        "dynamics",
    ),
    (
        checks.sampling.require_noise_in_last_step,
        {"window": {"skip_last": 0}, "dynamics": {"final_alpha": "one", "min_std": 0.0}},
        {},
        "dynamics.final_alpha",
    ),
    (
        checks.sampling.require_noise_in_last_step,
        {
            "window": {"skip_last": 0},
            "dynamics": {"final_alpha": "first", "min_std": 0.0},
            "schedule": {"steps": 10, "steps_offset": 0},
        },
        {},
        "schedule.steps_offset",
    ),
    (
        checks.sampling.require_noise_in_last_step,
        {"window": {"skip_last": 0}, "algo": {"divergence": "kl"}},
        {
            "dynamics": {"last_step_is_deterministic": True},
            "algo": {"requires": "transitions", "decided_by": FlowDPPO.decided_by},
        },
        "dynamics",
    ),
    (
        checks.sampling.require_noise_in_last_step,
        {
            "window": {"skip_last": 1},
            "branch_at": "tree",
            "tree": {"splits": [0, 9]},
            "dynamics": {"log_prob_of": "gaussian"},
        },
        {"dynamics": {"last_step_is_deterministic": True}},
        "dynamics.log_prob_of",
    ),
    (
        checks.sampling.require_noise_in_last_step,
        {"window": {"steps": [0, 9]}, "dynamics": {"log_prob_of": "gaussian"}},
        {"dynamics": {"last_step_is_deterministic": True}},
        "dynamics.log_prob_of",
    ),
    (
        checks.sampling.require_noise_in_last_step,
        {"window": {"size": 2, "low": 0, "high": None}},
        {"dynamics": {"last_step_is_deterministic": True}, "regularizer": GAUSSIAN},
        "regularizer",
    ),
    (
        checks.sampling.require_noise_in_last_step,
        {"window": {"size": 2, "low": 8, "high": None}, "regularizer": {"terms": {"a": {}}}},
        {
            "dynamics": {"last_step_is_deterministic": True},
            "window": {"noisier_half": True},
            "regularizer": {"requires": "terms"},
            "regularizer.terms.a": GAUSSIAN,
        },
        "regularizer",
    ),
    (
        checks.optimisation.require_matching_divergence,
        {},
        {"algo": {"requires": "forward_process"}},
        "regularizer",
    ),
    (
        checks.optimisation.require_matching_divergence,
        {},
        {"regularizer": {"requires": "tokens"}},
        "regularizer",
    ),
    (
        checks.optimisation.require_matching_divergence,
        {},
        {"algo": {"requires": "tokens"}},
        "regularizer",
    ),
    (
        PENALTY,
        {"regularizer": {"placement": "loss", "estimator": "k1"}},
        {},
        "regularizer.estimator",
    ),
    (
        checks.optimisation.require_matching_divergence,
        SUM,
        {"algo": {"requires": "forward_process"}, **terms({"requires": "transitions"})},
        "regularizer.terms.a",
    ),
    (
        checks.optimisation.require_matching_divergence,
        SUM,
        {"algo": {"requires": "tokens"}, **terms({"requires": "velocity"})},
        "regularizer.terms.a",
    ),
    (
        checks.optimisation.require_matching_divergence,
        {},
        {"regularizer": {"process": "flow"}, "model": {"process": "vp"}},
        "regularizer",
    ),
    (
        checks.optimisation.require_matching_divergence,
        SUM,
        {**terms({"process": "flow"}), "model": {"process": "vp"}},
        "regularizer.terms.a",
    ),
    (
        checks.optimisation.require_matching_divergence,
        {"regularizer": {"compare": "surrogate"}},
        {},
        "regularizer.compare",
    ),
    (
        checks.optimisation.require_matching_divergence,
        {"regularizer": {"terms": {"a": {"compare": "surrogate"}}}},
        terms({"requires": "velocity"}),
        "regularizer.terms.a.compare",
    ),
    (
        checks.optimisation.require_valid_terms,
        {"regularizer": {"terms": {}}},
        terms({}),
        "regularizer.terms",
    ),
    (
        checks.optimisation.require_valid_terms,
        SUM,
        terms({"requires": "nothing"}),
        "regularizer.terms.a",
    ),
    (
        checks.optimisation.require_valid_terms,
        SUM,
        terms({"requires": "tokens"}),
        "regularizer.terms.a",
    ),
    (
        checks.optimisation.require_valid_terms,
        SUM,
        terms({"requires": "terms"}),
        "regularizer.terms.a",
    ),
    (
        checks.optimisation.require_valid_terms,
        {"regularizer": {"terms": {"approx": {}}}},
        terms({"requires": "velocity"}, "approx"),
        "regularizer.terms.approx",
    ),
    (
        checks.chats.require_template,
        {"model": {"chat_template": "no.jinja"}},
        {},
        "model.chat_template",
    ),
    (
        checks.chats.require_template,
        {"model": {"chat_template": "none", "text_role": "user"}},
        {},
        "model.chat_template",
    ),
    (
        checks.chats.require_template,
        {"model": {"system_prompt": "Rhyme"}},
        {},
        "model.system_prompt",
    ),
    (
        checks.chats.require_answers_of_conversations,
        {"model": {"text_role": "user"}, "algo": {"train_on": "text"}},
        OF_DATA[1],
        "algo.train_on",
    ),
    (
        checks.chats.require_room,
        {**WRITER, "dynamics": {"length": 5000}},
        {"model": {"media": "texts"}},
        "dynamics.length",
    ),
    (
        checks.chats.require_room,
        {
            "model": {"path": "zoo:tiny_gpt2", "long_prompts": "refuse"},
            "prompts": {"path": long_prompt()},
            "dynamics": {"length": 8},
        },
        {"model": {"media": "texts"}, "prompts": {"prompt_files": ("path",)}},
        "model.long_prompts",
    ),
    (
        checks.chats.require_stop_tokens,
        {
            "model": {"path": "zoo:tiny_gpt2"},
            "dynamics": {"stop": ["The end"], "stop_match": "token"},
        },
        {"model": {"media": "texts"}},
        "dynamics.stop_match",
    ),
    (
        TOKENS,
        {"dynamics": {"stop": ["END", ""]}},
        {},
        "dynamics.stop",
    ),
    (checks.data.require_completions, {"algo": {"column": "no"}}, OF_DATA[1], "algo.column"),
    (
        checks.data.require_completions,
        {"algo": {"chosen": "include", "rejected": "no"}},
        OF_PAIRS,
        "algo.rejected",
    ),
    (checks.optimisation.require_group, {}, OF_DATA[1], "group_size"),
    (checks.optimisation.require_group, {"group_size": 1}, OF_PAIRS, "group_size"),
    (checks.optimisation.require_whole_groups, {"shares": "random"}, OF_PAIRS, "shares"),
    (
        checks.optimisation.require_group,
        {"shares": "groups", "group_size": 1},
        {"algo": {"learns_from_pairs": True}},
        "group_size",
    ),
    (
        checks.optimisation.require_matching_divergence,
        {"group_size": 1},
        {**OF_DATA[1], "regularizer": {"requires": "tokens"}},
        "regularizer",
    ),
    *(
        (
            PPO_OPTIONS,
            {"algo": {"score_placement": placement, "baseline": baseline}},
            {},
            "algo.score_placement",
        )
        for placement in ("uniform", "after_end")
        for baseline in ("group", "rloo", "value")
        if (placement, baseline) != ("uniform", "value")
    ),
    (
        PPO_OPTIONS,
        {"algo": {"score_placement": "after_end", "baseline": "none"}},
        {},
        "algo.score_placement",
    ),
    (
        PPO_OPTIONS,
        {"algo": {"surrogate": "clip", "clip_range": 0.2, "clip_high": 0.5, "dual_clip": 1.5}},
        {},
        "algo.dual_clip",
    ),
    (
        PPO_OPTIONS,
        {"algo": {"ratio": "product", "aggregation": "token"}},
        {},
        "algo.ratio",
    ),
    (
        checks.optimisation.require_group,
        {"resample": 1, "group_size": 1},
        {"advantage": {"grouped": False}},
        "group_size",
    ),
    (
        checks.optimisation.require_group,
        {"resample": 1, "group_size": 1},
        {"algo": {"samples_from": "data"}},
        "resample",
    ),
    (checks.optimisation.require_group, {"group_size": 1}, {}, "group_size"),
    (
        checks.optimisation.require_group,
        {"group_size": 1, "algo": {"baseline": "rloo"}},
        {"algo": {"requires": "tokens"}},
        "group_size",
    ),
    (
        checks.optimisation.require_group,
        {"group_size": 1, "advantage": {"mean": "global", "std": "group"}},
        {},
        "group_size",
    ),
    (
        checks.optimisation.require_group,
        {"group_size": 1, "advantage": {"mean": "group", "std": "none"}},
        {},
        "group_size",
    ),
    (
        checks.optimisation.require_group,
        {
            "group_size": 1,
            "advantage": {"mean": "global", "std": "global", "aggregate": "gdpo"},
        },
        {},
        "group_size",
    ),
    (
        checks.optimisation.require_group,
        {"group_size": 1, "advantage": {}},
        {},
        "group_size",
    ),
    (
        WEIGHTS,
        {"advantage": {"weights": {}}},
        {},
        "advantage.weights",
    ),
    (
        WEIGHTS,
        {"advantage": {"weights": {"a": 0.0, "b": 0}}},
        {},
        "advantage.weights",
    ),
    (
        TRACKER,
        {"advantage": {"buffer_size": 15, "min_count": 16}},
        {},
        "advantage.min_count",
    ),
    (
        checks.optimisation.require_warmup_before_end,
        {"old": {"schedule": "warmup_cosine", "warmup": 10, "total": 10}},
        {},
        "old.warmup",
    ),
    (checks.sampling.require_branches_fill_groups, {"branches": 4}, {}, "branches"),
    (checks.sampling.require_branches_fill_groups, {"branches": 2}, FORWARD, "branches"),
    (
        checks.sampling.require_branches_fill_groups,
        {"branch_at": "step", "branches": 2},
        {},
        "branches",
    ),
    (
        checks.sampling.require_branches_fill_groups,
        {"branch_at": "step", "window": {"size": 6}},
        {},
        "branches",
    ),
    (
        checks.sampling.require_step_likelihood,
        {},
        {"algo": {"required_dynamics": "cps"}},
        "dynamics",
    ),
    (
        checks.sampling.require_step_likelihood,
        {},
        {"algo": {"required_dynamics": "cps"}, "model": {"process": "vp"}},
        "algo",
    ),
    (checks.optimisation.require_reward_gradient, {}, {"algo": {"requires": "states"}}, "reward"),
    (
        checks.optimisation.require_reward_gradient,
        {"scoring": {"offload": True, "background": "none"}, "resample": 0},
        {"algo": {"requires": "states"}, "reward": {"differentiable": True}},
        "scoring.offload",
    ),
    (
        checks.optimisation.require_single_update,
        {},
        {"algo": {"on_policy": True}},
        "updates_per_iteration",
    ),
    (
        checks.optimisation.require_single_update,
        {"updates_per_iteration": 1, "epochs": 2},
        {"algo": {"on_policy": True}},
        "epochs",
    ),
    (
        checks.optimisation.require_equal_updates,
        {"updates_per_iteration": 5},
        {},
        "updates_per_iteration",
    ),
    (
        checks.optimisation.require_equal_updates,
        {"updates_per_iteration": 3, "shares": "groups"},
        {},
        "updates_per_iteration",
    ),
    (checks.sampling.require_tree_algorithm, TREE, {}, "branch_at"),
    (checks.sampling.require_tree_algorithm, {}, BRANCHING, "branch_at"),
    (TREE_OPTIONS, {**TREE, "branches": 8}, BRANCHING, "branches"),
    (TREE_OPTIONS, {**TREE, "tree": {"splits": []}}, BRANCHING, "branches"),
    (
        TREE_OPTIONS,
        {**TREE, "tree": {"splits": [0, 10]}},
        BRANCHING,
        "tree.splits",
    ),
    (
        TREE_OPTIONS,
        {**TREE, "tree": {"splits": [2, 2]}},
        BRANCHING,
        "tree.splits",
    ),
    (
        checks.sampling.require_tree_algorithm,
        TREE,
        {**BRANCHING, "advantage": {"grouped": False}},
        "advantage",
    ),
    (
        checks.sampling.require_tree_algorithm,
        {**TREE, "advantage": {"zero_variance": "drop"}},
        BRANCHING,
        "advantage.zero_variance",
    ),
    (
        TREE_OPTIONS,
        {"algo": {"skip_steps": [3, 10]}},
        BRANCHING,
        "algo.skip_steps",
    ),
    (
        WINDOW,
        {"window": {"steps": [1, 10]}},
        {},
        "window.steps",
    ),
    (WINDOW, {"window": {"steps": []}}, {}, "window.steps"),
    (
        WINDOW,
        {"window": {"skip_last": 10}},
        {},
        "window.skip_last",
    ),
    (
        WINDOW,
        {"window": {"size": 2, "low": 0, "high": 11}},
        {},
        "window.high",
    ),
    (
        WINDOW,
        {"window": {"size": 3, "low": 8, "high": None}},
        {},
        "window.size",
    ),
    (
        WINDOW,
        {"window": {"size": 9, "low": 0, "high": None}},
        {"window": {"margin": 2}},
        "window.size",
    ),
    (
        WINDOW,
        {"window": {"size": 1, "low": 8, "high": None}},
        {"window": {"margin": 2}},
        "window.low",
    ),
    (
        WINDOW,
        {"window": {"size": 1, "low": 5, "high": 5}},
        {},
        "window.low",
    ),
    (
        TIMES,
        {"times": {"count": 11}},
        FORWARD,
        "times.count",
    ),
    (
        TIMES,
        {"times": {"count": 10, "fraction": 0.99, "space": "index"}},
        FORWARD,
        "times.count",
    ),
    (
        TIMES,
        {"times": {"count": 9, "fraction": 0.99, "space": "index", "first": "never"}},
        FORWARD,
        "times.count",
    ),
    (
        TIMES,
        {"times": {"count": 10, "fraction": 1.0, "space": "sigma"}},
        FORWARD,
        "times.count",
    ),
    (
        TIMES,
        {"times": {"count": 1, "fraction": 0.05, "space": "index"}},
        FORWARD,
        "times.count",
    ),
    (
        TIMES,
        {"times": {"low": 0.5, "high": 0.5}},
        FORWARD,
        "times.low",
    ),
    (checks.data.require_matching_media, {}, {"reward": {"media": "texts"}}, "reward"),
    (checks.optimisation.require_group, {"group_size": 1}, {"reward": COMPARES}, "group_size"),
    (
        checks.optimisation.require_group,
        {"group_size": 1},
        {"reward.parts.a": COMPARES},
        "group_size",
    ),
    (
        checks.data.require_matching_media,
        parts(["a", "b"]),
        {
            **COMBINED,
            "reward.parts.a": {"media": "images"},
            "reward.parts.b": {"media": "texts"},
        },
        "reward.parts.b",
    ),
    (
        checks.data.require_matching_media,
        ALSO,
        {"eval_rewards.parts.a": {"media": "texts"}},
        "eval_rewards.parts.a",
    ),
    (
        checks.data.require_metadata,
        parts(["a"]),
        {**COMBINED, "reward.parts.a": {"metadata": ("words",)}},
        "reward.parts.a",
    ),
    (
        checks.data.require_metadata,
        ALSO,
        {"eval_rewards.parts.a": {"metadata": ("words",)}},
        "eval_rewards.parts.a",
    ),
    (checks.combined.require_distinct_parts, sets(["a", "a"]), {}, "eval_sets.of"),
    (checks.combined.require_named_sets, sets([".."]), {}, "eval_sets.of"),
    (checks.combined.require_named_sets, sets(["a"], counts={"b": 1}), {}, "eval_sets.counts.b"),
    (
        checks.combined.require_named_sets,
        sets(["a"], rewards={"a": []}),
        {},
        "eval_sets.rewards.a",
    ),
    (checks.combined.require_distinct_parts, parts([]), COMBINED, "reward.of"),
    (checks.combined.require_distinct_parts, parts(["a", "a"]), COMBINED, "reward.of"),
    (checks.combined.require_distinct_parts, parts(["combined"]), COMBINED, "reward.of"),
    (
        checks.combined.require_distinct_parts,
        ALSO,
        {"eval_rewards.parts.a": {"made_of": "parts"}},
        "eval_rewards.parts.a",
    ),
    (
        PARTS,
        parts(["a"], weights={"b": 1}),
        COMBINED,
        "reward.weights.b",
    ),
    (
        PARTS,
        parts(["a"], normalise={"b": "none"}),
        COMBINED,
        "reward.normalise.b",
    ),
    (
        PARTS,
        parts(["a"], gates={"a": {"b": 1}}),
        COMBINED,
        "reward.gates.a.b",
    ),
    (
        PARTS,
        parts(["a"], weights={"a": 0}),
        COMBINED,
        "reward.weights",
    ),
    (
        PARTS,
        parts(["a"], clips={"a": [1, 0]}),
        COMBINED,
        "reward.clips.a",
    ),
    (
        checks.combined.require_gdpo_advantage,
        parts(["a"], aggregate="gdpo"),
        COMBINED,
        "advantage",
    ),
    (
        checks.combined.require_gdpo_advantage,
        GDPO,
        {**COMBINED, "algo": {"requires": "tokens"}},
        "reward.aggregate",
    ),
    (
        checks.combined.require_gdpo_advantage,
        {**GDPO, "advantage": {"aggregate": "gdpo", "weights": {"a": 1}}},
        COMBINED,
        "advantage.weights",
    ),
    (checks.data.require_metadata, {}, {"prompts": {"metadata": ("tag",)}}, "reward"),
    (
        checks.data.require_metadata,
        {"reward": {"answer_column": "answer"}},
        {"reward": {"metadata_options": ("answer_column",)}, "prompts": {"metadata": ()}},
        "reward.answer_column",
    ),
    (checks.data.require_prompt_feature, {}, OF_QUOTES | {"prompts": {"features": ()}}, "reward"),
    (
        checks.prompt_files.require_splits,
        {"prompts": {"path": __file__, "split": "test"}},
        {},
        "prompts.split",
    ),
    (
        checks.data.require_functions,
        {"reward": {"function": "nowhere.py:f"}},
        {},
        "reward.function",
    ),
    (
        checks.networks.require_known_lora_targets,
        {"model": {**TINY["model"], "finetune": "lora", "lora_targets": ["nowhere"]}},
        {},
        "model.lora_targets",
    ),
    (checks.data.require_reward, {}, {"reward": {"gives_scores": False}}, "reward"),
    (
        checks.data.require_reward,
        {"stop": {"kl": None, "reward": 0.5}},
        {**OF_DATA[1], "reward": {"gives_scores": False}},
        "stop.reward",
    ),
    (
        checks.data.require_reward,
        {"eval_rewards": {"of": ["a"], "parts": {"a": {}}}},
        {"eval_rewards.parts.a": {"gives_scores": False}},
        "eval_rewards.parts.a",
    ),
    (checks.model_files.require_folders, {"run_dir": ""}, {}, "run_dir"),
    (checks.prompt_files.require_matching_pictures, {}, {"prompts": {"pictures": True}}, "prompts"),
    (checks.prompt_files.require_matching_pictures, {}, {"model": {"pictures": True}}, "prompts"),
    (
        checks.prompt_files.require_readable_pictures,
        {"prompts": {"path": PICTURED, "image_column": "image"}, "model": {"size": 64}},
        {"model": {"pictures": True}, "prompts": {"prompt_files": ("path",), "pictures": None}},
        "prompts.path",
    ),
    (
        checks.prompt_files.require_readable_prompts,
        {"prompts": {"path": "/no/where.txt"}},
        {"prompts": {"prompt_files": ("path", "eval_path")}},
        "prompts.path",
    ),
    (checks.optimisation.require_valid_optimizer, {"optimizer": {"lr": 0.0}}, {}, "optimizer.lr"),
    (
        checks.networks.require_equal_precision,
        {**IN_BOTH, "algo": {"old_log_probs": "sampled"}},
        {},
        "algo.old_log_probs",
    ),
    (
        checks.networks.require_equal_precision,
        IN_NEITHER,
        {},
        "precision.weights",
    ),
    (
        checks.networks.require_equal_precision,
        {"precision": {"weights": "bfloat16", "rollout": "bfloat16", "learning": "float32"}},
        {},
        "precision.weights",
    ),
    (
        checks.networks.require_known_attention,
        {"memory": {"attention": "flsh"}},
        {},
        "memory.attention",
    ),
    (
        checks.networks.require_known_attention,
        {"memory": {"attention": "flash"}, "hardware": {"deterministic": True}},
        {},
        "memory.attention",
    ),
    (
        PROCESSES,
        {"hardware": {"processes": 3}},
        {},
        "hardware.processes",
    ),
    *(
        (
            PROCESSES,
            {"hardware": {"strategy": "fsdp2", "processes": 2}, **changes},
            {},
            key,
        )
        for changes, key in (
            ({"model": {"value_path": "owner/name"}}, "hardware.strategy"),
            ({"optimizer": {"_target_": "bitsandbytes.optim.AdamW8bit"}}, "optimizer"),
        )
    ),
    (
        PROCESSES,
        {
            "prompts_per_iteration": 8,
            "hardware": {"strategy": "fsdp2", "processes": 8, "shard_size": 3},
        },
        {},
        "hardware.shard_size",
    ),
    *(
        (
            PROCESSES,
            {
                "prompts_per_iteration": 8,
                "hardware": {"strategy": "ddp", "processes": 8, key: value},
            },
            {},
            f"hardware.{key}",
        )
        for key, value in {"shard_size": 4, "offload": True, "defer_reduce": True}.items()
    ),
    (
        checks.networks.require_known_attention,
        {"memory": {"attention": "native"}},
        NO_BACKENDS,
        "memory.attention",
    ),
    (
        checks.networks.require_guidance_above_one,
        {"model": {"guidance": 1.0, "negative_prompt": "dull"}},
        {},
        "model.guidance",
    ),
    (
        checks.networks.require_guidance_above_one,
        {"model": {"guidance": 0.5}},
        {},
        "model.guidance",
    ),
    (
        checks.optimisation.require_valid_optimizer,
        {"optimizer": {"betas": [0.9, 1.0]}},
        {},
        "optimizer.betas",
    ),
    (
        checks.optimisation.require_valid_optimizer,
        {"optimizer": {"momentum": -0.1}},
        {},
        "optimizer.momentum",
    ),
    (
        WINDOW,
        {"window": {"size": 1, "low": 10}},
        {},
        "window.low",
    ),
    (checks.model_files.require_model_folders, {"model": {"path": "./nowhere"}}, {}, "model.path"),
    (
        checks.model_files.require_reward_models,
        {"reward": {"path": "./nowhere"}},
        {"reward": {"model_options": ("path",)}},
        "reward.path",
    ),
    (checks.model_files.require_model_folders, TINY, {"model": FLUX}, "model.path"),
    (checks.model_files.require_model_folders, WRITER, {"model": FLUX}, "model.path"),
    (checks.model_files.require_model_folders, TINY, {"model": {"media": "texts"}}, "model.path"),
    (
        checks.model_files.require_followed_scheduler,
        {"model": {"path": "zoo:tiny_sd"}},  # its DDIM, under a flow's adapter
        {"model": {"pipeline": "StableDiffusionPipeline", "process": "flow"}},
        "model.path",
    ),
    (
        checks.model_files.require_divisible_sizes,
        {"model": {**TINY["model"], "size": 60}},
        SD3,
        "model.size",
    ),
    (
        checks.model_files.require_divisible_sizes,
        {**TINY, "evaluation": {"size": 68}},
        SD3,
        "evaluation.size",
    ),
    (
        checks.model_files.require_matching_embedded_guidance,
        {"model": {**TINY["model"], "embedded_guidance": 3.5}},
        {},
        "model.embedded_guidance",
    ),
    (checks.model_files.require_folders, {"prompt_cache": __file__}, {}, "prompt_cache"),
    (checks.combined.require_distinct_loggers, {"logger": {"of": []}}, {}, "logger.of"),
    (checks.combined.require_distinct_loggers, {"logger": {"of": ["a", "a"]}}, {}, "logger.of"),
    (
        checks.combined.require_distinct_loggers,
        {},
        {"logger.parts.a": {"made_of": "parts"}},
        "logger.parts.a",
    ),
    (
        checks.combined.require_installed,
        {},
        {"logger.parts.b": NOWHERE},
        "logger.parts.b",
    ),
    (checks.combined.require_installed, {"logger": {}}, {"logger": NOWHERE}, "logger"),
    (checks.combined.require_installed, {}, {"engine": {"package": "nowhere"}}, "engine"),
    (checks.networks.require_engine_of_texts, {}, ENGINE, "engine"),
    (
        checks.networks.require_engine_of_texts,
        {"hardware": {"processes": 1}},
        ENGINE | {"model": {"process": "flow"}},
        "engine",
    ),
    *(
        (
            DRAWING,
            {"dynamics": {**WHOLE, key: value, "temperature": 0.7}},
            ENGINE,
            f"dynamics.{key}",
        )
        for key, value in (
            ("top_k", 5),
            ("top_p", 0.9),
            ("stop_after", 2),
            ("log_prob_of", "untempered"),
        )
    ),
    (
        checks.model_files.require_model_folders,
        {"model": {"path": "zoo:nowhere"}},
        {},
        "model.path",
    ),
    (
        checks.model_files.require_model_folders,
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
    own = {rule for rule, *_ in FIRES if rule.__name__ != "rule"}
    assert own | {require_valid_options} == set(RULES)


NOISELESS = {"final_alpha": "one", "min_std": 0.0, "log_prob_of": "gaussian"}

SILENT: list[tuple[Rule, dict[str, Any], dict[str, Any]]] = [
    (checks.model_files.require_possible_frames, {"model": {**VIDEO, "frames": 5}}, {}),
    *(
        (rule, TREE, BRANCHING)
        for rule in (
            checks.sampling.require_tree_algorithm,
            TREE_OPTIONS,
            checks.sampling.require_tree_algorithm,
        )
    ),
    (TREE_OPTIONS, {**TREE, "branches": 1}, BRANCHING),
    (TREE_OPTIONS, {"algo": {"skip_steps": [9]}}, BRANCHING),
    (
        checks.optimisation.require_equal_updates,
        {"updates_per_iteration": 4, "shares": "groups"},
        {},
    ),
    (checks.sampling.require_branches_fill_groups, {"branches": 3}, {}),
    (checks.model_files.require_model_folders, TINY, SD3),
    (checks.model_files.require_model_folders, WRITER, {"model": {"media": "texts"}}),
    (checks.model_files.require_divisible_sizes, {**TINY, "evaluation": {"size": 32}}, SD3),
    (checks.model_files.require_divisible_sizes, {"model": {**TINY["model"], "size": 60}}, {}),
    (
        checks.model_files.require_matching_embedded_guidance,
        {"model": {**TINY["model"], "embedded_guidance": None}},
        {},
    ),
    (checks.model_files.require_folders, {"prompt_cache": str(Path(__file__).parent)}, {}),
    (checks.sampling.require_branches_fill_groups, {"branches": 6}, {}),
    (
        checks.sampling.require_branches_fill_groups,
        {"branch_at": "step", "branches": 2, "window": {"size": 3}},
        {},
    ),
    (checks.sampling.require_step_likelihood, {}, {"algo": {"required_dynamics": "flow_sde"}}),
    (
        checks.sampling.require_step_likelihood,
        {},
        {"algo": {"required_dynamics": "cps"}, "dynamics": {"has_log_prob": False}},
    ),
    (
        checks.optimisation.require_single_update,
        {"updates_per_iteration": 1},
        {"algo": {"on_policy": True}},
    ),
    (
        PPO_OPTIONS,
        {"algo": {"surrogate": "clip", "clip_range": 0.2, "clip_high": 0.5, "dual_clip": 1.6}},
        {},
    ),
    (
        PPO_OPTIONS,
        {"algo": {"ratio": "product", "aggregation": "sequence"}},
        {},
    ),
    (checks.optimisation.require_group, {"resample": 1, "group_size": 2}, {}),
    *(
        (PPO_OPTIONS, {"algo": algo}, {})
        for algo in (
            {"score_placement": "uniform", "baseline": "value"},
            {"score_placement": "last", "baseline": "rloo"},
        )
    ),
    (checks.data.require_completions, *OF_DATA),
    (checks.data.require_completions, {"algo": {"column": None}}, OF_DATA[1]),
    (checks.data.require_completions, {"algo": {"column": "none"}}, {}),
    (checks.optimisation.require_group, {"group_size": 1}, OF_DATA[1]),
    (checks.optimisation.require_group, {"group_size": 6}, {}),
    (
        PPO_OPTIONS,
        {
            "algo": {"score_placement": "after_end", "baseline": "value"},
            "model": {"value_path": "owner/name"},
        },
        {},
    ),
    (
        checks.optimisation.require_group,
        {"group_size": 1},
        {"algo": {"requires": "tokens"}},
    ),
    (
        checks.optimisation.require_group,
        {"group_size": 1},
        {"advantage": {"grouped": False}},
    ),
    *(
        (
            checks.optimisation.require_group,
            {"group_size": 1, "advantage": {"mean": "global", "std": std, "aggregate": "sum"}},
            {},
        )
        for std in ("global", "none")
    ),
    (
        WEIGHTS,
        {"advantage": {"weights": {"a": 0, "b": -1}}},
        {},
    ),
    (
        TRACKER,
        {"advantage": {"buffer_size": 16, "min_count": 16}},
        {},
    ),
    (
        PENALTY,
        {"regularizer": {"placement": "reward", "estimator": "k1"}},
        {},
    ),
    (
        WINDOW,
        {"window": {"steps": [99]}},
        {"algo": {"requires": "forward_process"}},
    ),
    (
        WINDOW,
        {"window": {"size": 2, "low": 8, "high": 10}},
        {},
    ),
    (
        WINDOW,
        {"window": {"size": 10, "low": 0, "high": None}},
        {},
    ),
    (
        WINDOW,
        {"window": {"size": 8, "low": 0, "high": None}},
        {"window": {"margin": 2}},
    ),
    (
        WINDOW,
        {"window": {"size": 10, "low": 0, "high": 10}},
        {"window": {"margin": 2}},
    ),
    (TIMES, {"times": {"count": 10}}, FORWARD),
    (
        TIMES,
        {"times": {"count": 9, "fraction": 0.99, "space": "index", "first": "always"}},
        FORWARD,
    ),
    (
        TIMES,
        {"times": {"count": 9, "space": "sigma"}},
        FORWARD,
    ),
    (
        TIMES,
        {"times": {"count": 99}},
        merged(FORWARD, {"times": {}}),
    ),
    (
        TIMES,
        {"times": {"count": 99, "low": 0.9, "high": 0.1}},
        {},
    ),
    (TIMES, {"times": {"low": 0.2, "high": 1.0}}, FORWARD),
    (checks.data.require_metadata, {}, {"prompts": {"metadata": None}}),
    (
        checks.data.require_metadata,
        {"reward": {"answer_column": "answer"}},
        {"reward": {"metadata_options": ("answer_column",)}, "prompts": {"metadata": ("answer",)}},
    ),
    (
        checks.data.require_metadata,
        {"reward": {"answer_column": None}},
        {"reward": {"metadata_options": ("answer_column",)}, "prompts": {"metadata": ()}},
    ),
    (checks.data.require_metadata, {}, {"reward": {"media": "images"}}),
    (checks.data.require_matching_media, {}, {"reward": {}}),
    (checks.optimisation.require_group, {"group_size": 2}, {"reward": COMPARES}),
    (
        checks.optimisation.require_group,
        {"group_size": 1},
        {"rewards": COMPARES, "advantage": {"grouped": False}},
    ),
    (checks.combined.require_gdpo_advantage, GDPO, COMBINED),
    (PARTS, parts(["a", "b"], weights={"a": 0}), COMBINED),
    (PARTS, parts(["a"], weights=None), COMBINED),
    (PARTS, parts(["a"], clips={"a": [None, 0]}), COMBINED),
    (
        PARTS,
        parts(["a", "b"], gates={"a": {"b": 1}}),
        COMBINED,
    ),
    (checks.sampling.require_step_likelihood, {}, {"algo": {}, "dynamics": {}}),
    (
        checks.sampling.require_matching_dynamics,
        {"dynamics": {"length": 4}},
        {"dynamics": {}, "model": {"process": "tokens"}},
    ),
    (checks.sampling.require_matching_dynamics, {}, {"dynamics": {"process": None}}),
    (
        checks.sampling.require_matching_dynamics,
        {},
        {"dynamics": {"process": None}, "model": {"process": "vp"}},
    ),
    *(
        (
            rule,
            {"schedule": schedule, "evaluation": {"steps": evaluated}},
            {},
        )
        for rule, schedule, evaluated in (
            (SPACED_LEADING, {"steps": 999, "steps_offset": 1}, 999),
            (SPACED_LEADING, {"steps": 1000, "steps_offset": 0}, None),
            (SPACED_TRAILING, {"steps": 666}, 1),
        )
    ),
    (checks.sampling.require_matching_schedule, {}, {"model": {"process": "tokens"}}),
    (checks.sampling.require_matching_schedule, {}, {"model": {}}),
    (checks.sampling.require_matching_schedule, {}, {"schedule": {}}),
    *(
        (
            checks.sampling.require_noise_in_last_step,
            {"window": window, "dynamics": NOISELESS},
            {**NO_LAST_NOISE, "window": traits},
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
        checks.sampling.require_noise_in_last_step,
        {"window": {"skip_last": 0}, "dynamics": {"final_alpha": "one", "min_std": 1e-6}},
        {},
    ),
    (
        checks.sampling.require_noise_in_last_step,
        {"window": {"skip_last": 0}, "dynamics": {"final_alpha": "first", "min_std": 0.0}},
        {},
    ),
    (
        checks.sampling.require_noise_in_last_step,
        {"window": {"skip_last": 0}},
        {"regularizer": GAUSSIAN},
    ),
    (
        checks.sampling.require_noise_in_last_step,
        {"window": {"skip_last": 0}, "dynamics": NOISELESS},
        {**NO_LAST_NOISE, "algo": {"requires": "forward_process"}},
    ),
    (
        checks.sampling.require_noise_in_last_step,
        {"window": {"skip_last": 0}, "algo": {"divergence": "mean_shift"}},
        {
            "dynamics": {"last_step_is_deterministic": True},
            "algo": {"requires": "transitions", "decided_by": FlowDPPO.decided_by},
        },
    ),
    (
        checks.sampling.require_noise_in_last_step,
        {"window": {"skip_last": 0}, "dynamics": {"log_prob_of": "quadratic"}},
        {"dynamics": {"last_step_is_deterministic": True}},
    ),
    (
        checks.optimisation.require_matching_divergence,
        {},
        {"algo": {}, "regularizer": {"requires": "velocity"}},
    ),
    (checks.optimisation.require_matching_divergence, SUM, terms({"requires": "transitions"})),
    (checks.optimisation.require_matching_divergence, {}, {"regularizer": {"process": "flow"}}),
    (checks.optimisation.require_matching_divergence, {}, {"model": {"process": "vp"}}),
    (
        checks.optimisation.require_matching_divergence,
        {"regularizer": {"compare": "surrogate"}},
        {"algo": {"requires": "transitions", "has_surrogate_likelihood": True}},
    ),
    (
        checks.optimisation.require_matching_divergence,
        {"regularizer": {"compare": "prediction"}},
        {},
    ),
    (checks.optimisation.require_valid_terms, SUM, terms({"requires": "velocity"})),
    (checks.networks.require_equal_precision, IN_BOTH, FORWARD),
    (
        checks.networks.require_equal_precision,
        {**IN_BOTH, "algo": {"old_log_probs": "auto"}},
        {},
    ),
    (checks.networks.require_equal_precision, IN_BOTH, {}),
    (
        checks.networks.require_equal_precision,
        IN_NEITHER,
        {"model": {"media": "texts"}},
    ),
    (
        checks.networks.require_known_attention,
        {"memory": {"attention": "_native_flash"}},
        {},
    ),
    (
        checks.networks.require_known_attention,
        {"memory": {"attention": "x"}},
        {"model": {"media": "texts"}},
    ),
    (
        checks.networks.require_guidance_above_one,
        {"model": {"guidance": 1.0, "negative_prompt": ""}},
        {},
    ),
    (
        PROCESSES,
        {"hardware": {"strategy": "fsdp2", "processes": 2}},
        {},
    ),
    (
        PROCESSES,
        {
            "hardware": {"strategy": "fsdp2", "processes": 2},
            "model": {"finetune": "lora"},
            "optimizer": {"_target_": "bitsandbytes.optim.AdamW8bit"},
        },
        {},
    ),
    (
        PROCESSES,
        {
            "prompts_per_iteration": 8,
            "hardware": {"strategy": "fsdp2", "processes": 8, "shard_size": 4},
        },
        {},
    ),
    (checks.combined.require_distinct_loggers, {"logger": {}}, {"logger": {}}),
    (checks.combined.require_installed, {"logger": {}}, {"logger": {"package": None}}),
    (checks.combined.require_installed, {}, {"engine": {"package": "torch"}}),
    (DRAWING, {"dynamics": WHOLE}, ENGINE),
    (
        DRAWING,
        {"dynamics": {**WHOLE, "top_k": 5}},
        {},
    ),
    (
        checks.networks.require_guidance_above_one,
        {"model": {"guidance": 0.0, "negative_prompt": ""}},
        {},
    ),
    (
        checks.networks.require_guidance_above_one,
        {"model": {"guidance": 4.5, "negative_prompt": "dull"}},
        {},
    ),
]


@pytest.mark.parametrize(("rule", "config", "traits"), SILENT)
def test_a_rule_knows_its_limits(
    rule: Rule, config: dict[str, Any], traits: dict[str, Any]
) -> None:
    assert keys(rule, config, traits) == []


WEIGHTS = Path(checks.__file__).parents[2] / "model" / "zoo" / "weights"


@pytest.mark.parametrize(
    ("media", "name"), [("images", "model_index.json"), ("texts", "config.json")]
)
def test_a_folder_with_an_index_is_a_model(tmp_path: Path, media: str, name: str) -> None:
    config, traits = {"model": {"path": str(tmp_path)}}, {"model": {"media": media}}
    assert keys(checks.model_files.require_model_folders, config, traits) == ["model.path"]
    (tmp_path / name).write_text('{"model_type": "gpt2"}')
    for file in ("model.safetensors", "tokenizer.json") if media == "texts" else ():
        assert keys(checks.model_files.require_model_folders, config, traits) == ["model.path"]
        shutil.copy(WEIGHTS / "tiny_gpt2" / file, tmp_path)
    assert keys(checks.model_files.require_model_folders, config, traits) == []


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
        ("KandinskyPipeline", None),
        ("Flux2Pipeline", "flux2_dev"),
        ("Krea2Pipeline", "krea2"),
        ("AuraFlowPipeline", None),
    ],
)
def test_a_folder_of_another_family_is_given_its_own_command(
    tmp_path: Path, pipeline: str, option: str | None
) -> None:
    folder = folder_with(tmp_path, {"model_index.json": {"_class_name": pipeline}})
    config = merged(SOUND, {"model": {"path": str(folder)}})
    (problem,) = checks.model_files.require_model_folders(config, merged(STEPWISE, SD3))
    assert pipeline.replace("Img2Img", "").replace("Inpaint", "") in problem.message
    assert problem.fix == (f"rlfactory model={option} model.path={folder}" if option else "")


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
    (problem,) = checks.model_files.require_divisible_sizes(config, traits)
    assert problem.message.endswith(f"nearest {nearest[1]}")
    assert problem.fix == f"model.size={nearest[0]}"
    again = merged(SOUND, {"model": {"path": str(folder), "size": nearest[0]}})
    assert list(checks.model_files.require_divisible_sizes(again, traits)) == []


@pytest.mark.parametrize(("takes", "given"), [(True, None), (False, 3.5)])
def test_guidance_is_what_the_network_takes(
    tmp_path: Path, takes: bool, given: float | None
) -> None:
    folder = folder_with(tmp_path, {"transformer/config.json": {"guidance_embeds": takes}})
    model = {"path": str(folder), "embedded_guidance": given}
    (problem,) = checks.model_files.require_matching_embedded_guidance(
        merged(SOUND, {"model": model}), STEPWISE
    )
    remedy = problem.fix.partition("=")[2]
    mended = {**model, "embedded_guidance": None if remedy == "null" else float(remedy)}
    assert (
        list(
            checks.model_files.require_matching_embedded_guidance(
                merged(SOUND, {"model": mended}), STEPWISE
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((), "holds no config.json"),
        (("adapter_config.json",), "merge_and_unload"),
        (("config.json",), None),
        (None, "there is no folder"),
    ],
)
def test_the_folder_of_a_rewards_model_holds_one(
    tmp_path: Path, files: tuple[str, ...] | None, said: str | None
) -> None:
    folder = tmp_path / "own"
    for file in files or ():
        folder.mkdir(exist_ok=True)
        (folder / file).write_text("{}")
    if files == ():
        folder.mkdir()
    config = merged(SOUND, {"reward": {"path": str(folder), "prefix": "./nowhere"}})
    own = {"reward": {"model_options": ("path",)}}
    found = [*checks.model_files.require_reward_models(config, merged(STEPWISE, own))]
    assert [p.key for p in found] == ([] if said is None else ["reward.path"])
    assert said is None or said in found[0].message


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
    problems = list(checks.model_files.require_model_folders(SOUND, merged(STEPWISE, SD3)))
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
    assert keys(checks.model_files.require_model_folders, config, SD3) == ["model.path"]
    assert keys(checks.model_files.require_divisible_sizes, config, {"model": FLUX}) == [
        "model.size"
    ]


@pytest.mark.parametrize("updates", range(1, 25))
def test_the_updates_that_are_proposed_divide(updates: int) -> None:
    config = merged(SOUND, {"updates_per_iteration": updates})
    problems = list(checks.optimisation.require_equal_updates(config, STEPWISE))
    assert bool(problems) == (24 % updates != 0)
    for problem in problems:
        assert 24 % int(problem.fix.partition("=")[2]) == 0


@pytest.mark.parametrize(
    ("regularizer", "dynamics", "count"),
    [
        ({"placement": "loss", "estimator": "k3"}, {}, 1),
        ({"placement": "reward", "estimator": "k1"}, {"top_k": 20}, 2),
        ({"placement": "reward", "estimator": "k1"}, {"top_p": 0.9}, 2),
        ({"placement": "reward", "estimator": "k1"}, {"top_k": 0, "top_p": 1.0}, 0),
        ({"placement": "loss", "estimator": "exact"}, {"top_k": 20}, 1),
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
    traits = merged(STEPWISE, {"model": {"process": process}, "algo": {"requires": needs}})
    (problem,) = checks.sampling.require_matching_dynamics(SOUND, traits)
    assert problem.fix == remedy
    back = merged(STEPWISE, {"dynamics": {"process": "vp"}})
    (problem,) = checks.sampling.require_matching_dynamics(SOUND, back)
    assert problem.fix == "dynamics=flow_sde"


@pytest.mark.parametrize(("requires", "count"), [("nothing", 1), ("velocity", 0)])
def test_a_threshold_of_a_divergence_that_nothing_measures_is_noted(
    requires: str, count: int
) -> None:
    stop = {"stop": {"kl": 0.1, "reward": None}, "evaluation": {"every": 10}}
    config = {"regularizer": {}, "dynamics": {}, **stop}
    kind = merged(STEPWISE, {"regularizer": {"requires": requires}})
    assert len(list(cautions(config, kind))) == count


@pytest.mark.parametrize(("name", "count"), [("a", 1), ("reference", 0)])
def test_a_sum_without_a_reference_stops_no_run(name: str, count: int) -> None:
    stop = {"stop": {"kl": 0.1, "reward": None}, "evaluation": {"every": 10}, "dynamics": {}}
    config = {"regularizer": {"terms": {name: {}}}, **stop}
    assert len(list(cautions(config, merged(STEPWISE, terms({}, name))))) == count


BEGUN = "iterations: 1\nmodel: {_target_: rlfactory.model.sd3.TinySD3, finetune: lora}\n"


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
    found = [
        *checks.model_files.require_compatible_run({"begin_from": str(tmp_path), "model": ours}, {})
    ]
    assert [p.key for p in found] == (["begin_from"] if said else [])
    assert all(said in p.message for p in found)


def test_adapters_that_are_not_read_or_not_merged_are_refused_in_the_plan(tmp_path: Path) -> None:
    model = {"path": "zoo:tiny_gpt2", "finetune": "lora"}
    config = {"begin_from": str(tmp_path), "begin_as": "merged", "model": model}
    (tmp_path / "adapter_model.bin").touch()
    (problem,) = checks.model_files.require_compatible_run(config, {})
    assert "holds no LoRA adapters in safetensors; what saved the .bin file" in problem.message
    name = "base_model.model.transformer.wpe.lora_embedding_"
    state = {f"{name}A": torch.zeros(2, 64), f"{name}B": torch.zeros(256, 2)}
    save_file(state, tmp_path / "adapter_model.safetensors")
    (problem,) = checks.model_files.require_compatible_run(config, {})
    assert "adapts the embedding transformer.wpe, which is not merged" in problem.message


@pytest.mark.parametrize(
    ("count", "near", "remedy"),
    [(3, "1, 2, 4", 2), (5, "2, 4, 8", 4), (16, "2, 4, 8", 8), (8, None, None)],
)
def test_the_processes_that_are_proposed_divide(
    count: int, near: str | None, remedy: int | None
) -> None:
    config = merged(SOUND, {"hardware": {"processes": count}, "prompts_per_iteration": 8})
    problems = list(PROCESSES(config, STEPWISE))
    assert len(problems) == (near is not None)
    for problem in problems:
        assert f"the 8 groups of an iteration; nearest are {near}, or" in problem.message
        assert problem.fix == f"hardware.processes={remedy}"


def test_a_single_file_is_told_how_to_become_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "anime.safetensors"
    file.touch()
    config = {"model": {"path": str(file)}}
    (problem,) = checks.model_files.require_model_folders(config, {"model": FLUX})
    assert f"FluxPipeline.from_single_file('{file}').save_pretrained('anime')" in problem.message
    assert problem.message.endswith("type model.path=anime")
    assert problem.fix == ""


def test_a_scheduler_that_no_schedule_follows_is_refused_before_loading(tmp_path: Path) -> None:
    rule, config = checks.model_files.require_followed_scheduler, {"model": {"path": str(tmp_path)}}
    traits = {"model": {"process": "flow"}}
    name = {"_class_name": "FlowMatchEulerDiscreteScheduler"}
    for options, count in (({}, 0), ({"shift_terminal": 0.1}, 0), ({"invert_sigmas": True}, 1)):
        folder_with(tmp_path, {"scheduler/scheduler_config.json": name | options})
        problems = list(rule(config, traits))
        assert [problem.key for problem in problems] == ["model.path"] * count
        assert all("invert_sigmas=true" in problem.message for problem in problems)


def test_a_pipeline_of_other_timesteps_is_noted(tmp_path: Path) -> None:
    folder_with(tmp_path, {"scheduler/scheduler_config.json": {"timestep_spacing": "trailing"}})
    path, schedule = {"path": str(tmp_path)}, {"_target_": LEADING, "steps": 10, "steps_offset": 1}
    config = merged(SOUND, {"model": path, "schedule": schedule})
    config |= {"stop": {"kl": None, "reward": None}}
    for process, count in (("vp", 1), ("flow", 0)):
        found = list(cautions(config, merged(STEPWISE, {"model": {"process": process}})))
        assert len(found) == count
        assert all("timestep_spacing=trailing" in note for note in found)
