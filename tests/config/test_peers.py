"""Each peer's preset: whole in itself, and what its code is known to do."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfactory.config.options import packaged_folder
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.plan import Plan

FILES = {path.stem: path for path in sorted(packaged_folder("conf").glob("experiment/peer/*.yaml"))}
ROOT_KEYS = {
    *("seed", "iterations", "prompts_per_iteration", "group_size", "epochs"),
    *("updates_per_iteration", "max_grad_norm"),
}
MODEL_KEYS = {
    *("finetune", "size", "guidance", "embedded_guidance", "timesteps"),
    *("lora_rank", "lora_alpha"),
}
DECISIVE = {
    "schedule": {"steps", "shift"},
    "optimizer": {"lr", "betas", "eps", "weight_decay"},
    "learning_rate": {"warmup", "final_scale"},
    "evaluation": {"weights", "steps", "size"},
}
AVERAGE_KEYS = {"schedule", "clock", "update", "interval"}


@cache
def plan(name: str, *more: str) -> Plan:
    return plan_from_words(f"experiment=peer/{name}", *more)


def stated(path: Path) -> dict[str, Any]:
    node = yaml.safe_load(path.read_text())
    assert isinstance(node, dict)
    return node


def at(config: Mapping[str, Any], key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        node = node[part]
    return node


def is_stepwise(name: str) -> bool:
    return "window" in plan(name).choices


@pytest.mark.parametrize("name", FILES)
def test_it_chooses_all_that_matters(name: str) -> None:
    chosen = {key.removeprefix("override /") for c in stated(FILES[name])["defaults"] for key in c}
    means = "window" if is_stepwise(name) else "times"
    assert chosen == {
        *("schedule", "advantage", "dynamics", "regularizer", "reward", "prompts", "precision"),
        *("algo", "model", means),
    }


@pytest.mark.parametrize("name", FILES)
def test_it_stands_by_itself(name: str) -> None:
    """No default of ours, or change to one, alters what it does."""
    own, config = stated(FILES[name]), plan(name).config
    assert own.keys() >= ROOT_KEYS
    assert not is_stepwise(name) or "latent_storage" in own
    groups = ["algo", "advantage", "dynamics", "window" if is_stepwise(name) else "times"]
    for group in groups:
        expected = config[group].keys() - {"_target_", "weights"}
        assert own.get(group, {}).keys() >= expected, group
    for group, keys in DECISIVE.items():
        assert own[group].keys() >= keys & config[group].keys(), group
    keys = MODEL_KEYS & config["model"].keys()
    lora = {key for key in keys if key.startswith("lora") and config["model"]["finetune"] == "full"}
    assert own["model"].keys() >= keys - lora | {"path"}
    averages = ["ema"] if config["evaluation"]["weights"] == "ema" else []
    averages += ["old"] if name.endswith(("nft", "awm")) else []
    for average in averages:
        assert own[average].keys() >= AVERAGE_KEYS, average


@pytest.mark.parametrize("name", FILES)
def test_it_says_what_is_asked_and_what_judges(name: str) -> None:
    third = FILES[name].read_text().splitlines()[2]
    assert re.match(r"# Prompts(: .*; reward: | and reward are )", third)
    fetched = plan(name).choices["prompts"] in ("pick_a_pic", "hpdv2")
    assert fetched == ("a download" in third)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # the numbers are those of docs/reference/peers.md
        pytest.param(
            "schedule.kind",
            {"flow_grpo": "diffusers", "nft": "diffusers", "awm": "diffusers"}
            | {"flow_factory_grpo": "uniform", "dance": "uniform", "mix": "uniform"},
            id="1",
        ),
        pytest.param(
            "advantage.unbiased",
            {"dance": True, "mix": True, "vgrpo_sd35": True, "flow_grpo": False, "nft": False},
            id="2",
        ),
        pytest.param(
            "advantage.eps",
            {"flow_grpo": 1e-4, "nft": 1e-4, "dance": 1e-8, "mix": 1e-8, "flow_factory_awm": 1e-6}
            | {"ddpo": 1e-6, "trl_ddpo": 1e-8, "vgrpo_flux": 1e-6},
            id="2, the constant",
        ),
        pytest.param(
            "advantage.std",
            {"flow_grpo": "global", "guard": "group", "tempflow": "group", "nft": "global"}
            | {"dance": "group", "flow_factory_grpo": "global"},
            id="3",
        ),
        pytest.param(
            "regularizer._target_",
            {
                "flow_grpo": "rlfactory.regularizer.kl_flow_grpo.KLFlowGRPO",
                "tempflow": "rlfactory.regularizer.kl_gaussian.KLGaussian",
            },
            id="4",
        ),
        pytest.param("dynamics.log_prob_of", {"flow_grpo_fast": "quadratic"}, id="5"),
        pytest.param("algo.bias", {"guard": "batch", "flow_factory_guard": "sample"}, id="6"),
        pytest.param("algo.per_time", {"guard": True, "flow_factory_guard": False}, id="6, time"),
        pytest.param("algo.weighting", {"tempflow": "tempflow", "flow_grpo": "none"}, id="7"),
        pytest.param("dynamics.constants", {"dance": True}, id="8"),
        pytest.param("dynamics.decode", {"dance": "x0"}, id="10"),
        pytest.param("dynamics.final_alpha", {"ddpo": "first", "trl_ddpo": "first"}, id="11"),
        pytest.param("advantage.scale", {"awm": 0.2, "flow_factory_awm": 1.0}, id="12"),
        pytest.param("times.space", {"awm": "index", "flow_factory_awm": "sigma"}, id="15"),
        pytest.param("old.clock", {"nft": "step", "flow_factory_nft": "iteration"}, id="16"),
        pytest.param(
            "ema.interval", {"flow_grpo": 8, "nft": 1, "flow_factory_grpo": 4}, id="16, i"
        ),
        pytest.param("algo.reduction", {"vgrpo_flux": "mean", "vgrpo_sd35": "mean"}, id="17"),
        pytest.param(
            "advantage.clip",
            {"ddpo": 5.0, "trl_ddpo": 5.0, "drlx": 10.0, "awm": 5.0, "flow_factory_awm": 1.0},
            id="12, 18",
        ),
        pytest.param(
            "latent_storage",
            {"flow_grpo": "float16", "flow_grpo_fast": "float32", "flow_factory_grpo": "float16"}
            | {"ddpo": "float16", "drlx": "float32", "dance_sd": "bfloat16"},
            id="20",
        ),
        pytest.param(
            "model.timesteps",
            {"dance": "truncated", "mix": "truncated", "flow_grpo": "exact", "cps": "exact"},
            id="21",
        ),
        pytest.param(
            "advantage.zero_variance",
            {"flow_grpo": "renormalise", "guard": "renormalise", "awm": "keep", "dance": "keep"},
            id="23",
        ),
        pytest.param(
            "reward._target_",
            {
                "flow_grpo": "rlfactory.reward.geneval.GenEval",
                "dance": "rlfactory.reward.hps.HPS",
                "flow_factory_nft": "rlfactory.reward.pickscore.PickScore",
                "ddpo": "rlfactory.reward.jpeg.Compressibility",
                "drlx": "rlfactory.reward.aesthetic.Aesthetic",
            },
            id="the reward",
        ),
        pytest.param(
            "reward.of",
            {
                "mix": ["hps", "clipscore", "imagereward", "pickscore", "unifiedreward"],
                "vgrpo_sd35": ["pickscore", "hps", "clipscore"],
            },
            id="several rewards",
        ),
        pytest.param("algo.divergence", {"flow_dppo": "kl"}, id="25"),
        pytest.param(
            "algo.clip_range", {"unirl_grpo_flux2_klein": 5e-3, "flow_grpo": 1e-4}, id="26"
        ),
        pytest.param(
            "algo.kl_threshold",
            {"flow_factory_dppo_flux2_klein": 1e-6, "flow_dppo": 1e-5},
            id="25, the threshold",
        ),
        pytest.param("algo.over_steps", {"drlx": "sum", "ddpo": "mean", "dance": "mean"}, id="24"),
    ],
)
def test_where_they_disagree(key: str, expected: Mapping[str, Any]) -> None:
    assert {name: at(plan(name).config, key) for name in expected} == expected


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *((name, "fp16") for name in ("ddpo", "flow_grpo", "flow_grpo_fast", "guard", "nft")),
        *((name, "bf16") for name in ("cps", "dance", "dance_sd", "mix", "mix_flash")),
        *((name, "bf16_rollout") for name in ("vgrpo_flux", "vgrpo_sd35")),
    ],
)
def test_what_they_compute_in(name: str, precision: str) -> None:
    assert plan(name).choices["precision"] == precision


@pytest.mark.parametrize(
    ("words", "evaluations"),
    [
        # V-GRPO's tables 1, 2 and 5, in evaluations a sample: to draw it and compare, to learn
        (["vgrpo_flux"], ("25", "4", "4")),
        (["vgrpo_flux", "schedule.steps=16"], ("16", "4", "4")),
        (["vgrpo_sd35"], ("40", "4", "4")),
        (
            ["vgrpo_sd35", "updates_per_iteration=2", "times.count=10", "micro_batch=10"],
            ("40", "10", "10"),
        ),
        (["mix", "algo.old_log_probs=sampled"], ("25", "0", "4")),
        (
            ["mix_flash", "tail=0.2", "window.step=0", "algo.old_log_probs=sampled"],
            ("8", "0", "4"),
        ),
    ],
    ids=str,
)
def test_published_numbers_of_evaluations(
    words: list[str], evaluations: tuple[str, str, str]
) -> None:
    told = plan(*words).derived["passes"]
    drawn, *more = re.findall(r"(\d+) (?:forward passes )?to", told)
    assert (drawn, *(["0"] * (2 - len(more))), *more) == evaluations
