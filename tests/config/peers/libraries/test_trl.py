"""TRL's configurations become commands with the same sizes."""

from pathlib import Path
from typing import Any

import pytest

from rlfactory.config.frozen import differences
from rlfactory.config.overrides import compose, plan_composed
from rlfactory.config.peers.files import of_keys, trainer_of, translate
from rlfactory.config.peers.importer import Translation
from rlfactory.config.plan import Plan

PAIRS = Path(__file__).parents[3] / "data" / "pairs.jsonl"
GRPO: dict[str, Any] = {
    "learning_rate": 1e-5,
    "num_generations": 8,
    "max_completion_length": 256,
    "per_device_train_batch_size": 16,
    "gradient_accumulation_steps": 2,
    "max_steps": 500,
    "use_vllm": True,
    "reward_funcs": ["my_function"],
}


def of_trl(content: dict[str, Any], processes: int, trainer: str | None = None) -> Translation:
    if trainer is not None:
        return translate("TRL", content, processes, trainer)
    made = of_keys(content, processes)
    assert made is not None
    return made


def planned(content: dict[str, Any], processes: int = 1) -> Plan:
    return plan_composed(compose(of_trl(content, processes).command()))


def test_dpo_has_its_pairs_and_its_loss() -> None:
    content = {
        "loss_type": ["ipo", "sft"],
        "loss_weights": [1.0, 0.5],
        "beta": 0.2,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 3,
        "max_length": 512,
        "max_steps": 50,
        "dataset_name": str(PAIRS),
    }
    assert trainer_of(content) == "dpo"
    assert trainer_of({"loss_type": "l2"}) is None
    config = planned(content, 2).config
    assert (config["prompts_per_iteration"], config["updates_per_iteration"]) == (24, 1)
    assert (config["micro_batch"], config["iterations"]) == (8, 50)
    algo = config["algo"]
    assert (algo["loss_type"], algo["beta"], algo["sft_weight"]) == ("ipo", 0.2, 0.5)
    assert config["optimizer"]["lr"] == 1e-6
    assert config["algo"]["length"] == 512
    # without effect there
    assert planned({**content, "label_smoothing": 0.1}).config["algo"]["label_smoothing"] == 0
    robust = {**content, "loss_type": "robust", "loss_weights": None, "label_smoothing": 0.1}
    assert planned(robust).config["algo"]["label_smoothing"] == 0.1


def test_grpo_has_the_sizes_of_its_generation_batch() -> None:
    config = planned(GRPO).config
    assert (config["prompts_per_iteration"], config["group_size"]) == (4, 8)
    assert (config["updates_per_iteration"], config["iterations"]) == (1, 500)
    assert config["dynamics"]["length"] == 256
    assert config["regularizer"]["placement"] == "none"  # beta 0
    assert config["learning_rate"]["final_scale"] == 0.0
    more = planned({**GRPO, "steps_per_generation": 8, "beta": 0.04, "num_iterations": 2}, 2).config
    # 16 x 2 processes x 8 steps = 256 completions, 64 an optimizer step
    assert (more["prompts_per_iteration"], more["updates_per_iteration"]) == (32, 4)
    assert (more["epochs"], more["iterations"]) == (2, 62)  # 500 steps, 8 an iteration
    assert more["regularizer"]["coefficient"]["value"] == 0.04
    assert more["hardware"]["processes"] == 2


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"loss_type": "grpo"}, {"aggregation": "sequence", "std": "group"}),
        ({"scale_rewards": "none"}, {"aggregation": "token", "std": "none"}),
        ({"loss_type": "dr_grpo"}, {"aggregation": "constant", "clip_high": None}),
        (
            {"epsilon": 0.1, "epsilon_high": 0.28, "delta": 3.0},
            {"aggregation": "token", "clip_range": 0.1, "clip_high": 0.28, "dual_clip": 3.0},
        ),
        # the bound itself there
        (
            {"loss_type": "cispo", "epsilon_high": 5.0},
            {"surrogate": "cispo", "clip_range": 1.0, "clip_high": 4.0},
        ),
        (
            {"loss_type": "vespo", "vespo_k_neg": 2.5},
            {"surrogate": "vespo", "ratio": "product", "power_negative": 2.5},
        ),
        ({"loss_type": "sapo", "mask_truncated_completions": True}, {"mask_truncated": True}),
        ({"importance_sampling_level": "sequence", "scale_rewards": "batch"}, {"std": "global"}),
    ],
)
def test_options_of_the_loss(content: dict[str, Any], expected: dict[str, Any]) -> None:
    algo = planned({**GRPO, **content}).config["algo"]
    assert {key: algo[key] for key in expected} == expected


def test_counts_of_optimizer_steps_are_all_divided() -> None:
    steps = {"max_steps": 80, "warmup_steps": 8, "save_steps": 40, "eval_steps": 20}
    content = {**GRPO, **steps, "num_iterations": 2, "steps_per_generation": 4}
    config = planned({**content, "lr_scheduler_type": "cosine"}).config
    # four optimizer steps an iteration
    assert (config["iterations"], config["learning_rate"]["warmup"]) == (20, 2)
    assert (config["checkpoint"]["every"], config["evaluation"]["every"]) == (10, 5)
    assert config["learning_rate"]["schedule"] == "cosine"
    assert planned({**content, "warmup_steps": 0.1}).config["learning_rate"]["warmup"] == 2
    unknown = of_trl({**GRPO, "max_steps": -1, "warmup_ratio": 0.1}, 1)
    assert "learning_rate.warmup" not in unknown.words
    assert {"num_train_epochs", "warmup_ratio"} <= {*unknown.dropped}


def test_the_estimator_of_ppo_is_kept() -> None:
    ppo = {"num_ppo_epochs": 2, "kl_estimator": "k3", "total_episodes": 1024}
    assert planned(ppo).config["regularizer"]["estimator"] == "k3"
    assert planned({"num_ppo_epochs": 2}).config["regularizer"]["estimator"] == "k1"


def test_adapters_need_use_peft() -> None:
    made = of_trl({**GRPO, "lora_r": 4}, 1)
    assert "model.lora_rank" not in made.words
    assert made.dropped["lora_r"][1] == "use_peft is not set"


def test_what_has_no_counterpart_is_listed() -> None:
    dropped = of_trl(GRPO, 1).dropped
    assert dropped["use_vllm"][0] is True
    assert dropped["reward_funcs"][0] == ["my_function"]
    assert of_trl({**GRPO, "loss_type": "newer"}, 1).dropped["loss_type"][0] == "newer"


def test_rewards_are_a_list_with_weights() -> None:
    several = {"reward_funcs": ["accuracy_reward", "mine.score", "a.py:b"]}
    words = of_trl({**GRPO, **several, "reward_weights": [1.0, 0.5, 2]}, 1).words
    assert words["reward"] == "reward=[math,mine:score,a.py:b]"
    assert words["reward.weights"] == "reward.weights=[1,0.5,2]"
    unknown = of_trl({**GRPO, "reward_funcs": ["length", "mine"], "reward_weights": [1, 2]}, 1)
    assert unknown.words["reward"] == "reward=length"
    assert {"reward_funcs", "reward_weights"} <= unknown.dropped.keys()
    hub = of_trl({**GRPO, "reward_funcs": ["owner/model", "length"]}, 1)
    assert hub.dropped["reward_funcs"][0] == ["owner/model"]


@pytest.mark.parametrize(("kind", "mark"), [("sft", {"packing": False}), ("dpo", {"beta": 0.1})])
def test_the_longest_text_is_the_algorithms(kind: str, mark: dict[str, Any]) -> None:
    into = of_trl({"max_length": 300, **mark}, 1, kind)
    assert into.words["algo.length"] == "algo.length=300"
    assert "dynamics.length" not in into.words
    assert "algo.length" not in of_trl({"max_length": None, **mark}, 1, kind).words


def test_all_weights_are_trained_and_texts_are_no_messages() -> None:
    content = {k: v for k, v in GRPO.items() if k != "use_peft"}
    content["model_name_or_path"] = "owner/chat"
    config = planned(content).config
    assert (config["model"]["finetune"], config["model"]["text_role"]) == ("full", "none")
    words = of_trl({**content, "use_peft": True, "lora_target_modules": "all-linear"}, 1).words
    assert words["model.finetune"] == "model.finetune=lora"
    assert words["model.lora_targets"] == "model.lora_targets=all-linear"


def test_ppo_is_the_experiment_of_its_version() -> None:
    content = {
        "total_episodes": 64_000, "num_ppo_epochs": 4, "per_device_train_batch_size": 64,
        "missing_eos_penalty": 1.0, "reward_model_path": "sentiment", "max_grad_norm": 1.0,
    }  # fmt: skip
    wanted = plan_composed(compose(["experiment=trl_v2"])).config
    found = differences(wanted, planned(content).config)
    assert [d for d in found if d[0] != "micro_batch"] == []


def test_ppo_with_a_reward_model_has_four_networks() -> None:
    content = {
        "total_episodes": 1_000_000, "num_ppo_epochs": 4, "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 4, "missing_eos_penalty": 1.0, "learning_rate": 3e-6,
        "model_name_or_path": "EleutherAI/pythia-1b-deduped", "dataset_name": "trl-lib/tldr",
        "sft_model_path": "cleanrl/EleutherAI_pythia-1b-deduped__sft__tldr",
        "reward_model_path": "cleanrl/EleutherAI_pythia-1b-deduped__reward__tldr",
    }  # fmt: skip
    wanted = plan_composed(compose(["experiment=trl_tldr"])).config
    found = differences(wanted, planned(content, 8).config)
    own = ("micro_batch", "sample_batch", "hardware", "reward.", "prompts.", "model.begin_with_end")
    own += ("model.value_head", "evaluation.weights")  # the critic is a network; TRL keeps no EMA
    assert [d for d in found if not d[0].startswith(own)] == []


def test_rloo_and_its_group() -> None:
    config = planned({"rloo_k": 4, "per_device_train_batch_size": 8}).config
    assert (config["group_size"], config["prompts_per_iteration"]) == (4, 2)
    algo, penalty = config["algo"], config["regularizer"]
    assert algo["baseline"] == "rloo"
    # one ratio of a response, of whose score the log-ratio to the reference is subtracted
    assert (algo["ratio"], algo["aggregation"]) == ("product", "sequence")
    assert (penalty["placement"], penalty["estimator"]) == ("reward", "k1")
    assert planned({"rloo_k": 4, "num_ppo_epochs": 2}).config["algo"]["baseline"] == "rloo"


def test_deviations_penalty_and_precision_are_those_of_trl() -> None:
    config = planned({**GRPO, "beta": 0.1}).config
    assert config["algo"]["whiten_unbiased"] is True
    assert config["regularizer"]["weighting"] == "ratio"
    assert config["precision"]["learning"] == "bfloat16"
    plain = planned({**GRPO, "beta": 0.1, "use_bias_correction_kl": False, "bf16": False}).config
    assert plain["regularizer"]["weighting"] == "none"
    assert plain["precision"]["learning"] == "float32"


@pytest.mark.parametrize(("content", "ours"), [({"num_generations": 8}, True), ({"a": 1}, False)])
def test_files_of_trl(content: dict[str, Any], ours: bool) -> None:
    assert (trainer_of(content) is not None) is ours
