"""Options of verl's and OpenRLHF's trainers, and of ms-swift's commands, as a command."""

from collections.abc import Mapping
from typing import Any

from rlfactory.config.peers import trl
from rlfactory.config.peers.names import rows_of
from rlfactory.config.peers.translation import Fields, Translation, choice, translate_rest

SIZES: Mapping[str, Mapping[str, str]] = {
    "verl": {
        "data.train_batch_size": "prompts_per_iteration",
        "actor_rollout_ref.rollout.n": "group_size",
        "actor_rollout_ref.actor.ppo_epochs": "epochs",
        "data.max_response_length": "dynamics.length",
        "trainer.total_training_steps": "iterations",
    },
    "OpenRLHF": {
        "rollout_batch_size": "prompts_per_iteration",
        "n_samples_per_prompt": "group_size",
        "max_epochs": "epochs",
        "generate_max_len": "dynamics.length",
    },
}
"""What other options are converted by, and so comes first."""
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "verl": {
        "algorithm.adv_estimator": "gae",
        "data.train_batch_size": 1024,
        "actor_rollout_ref.rollout.n": 1,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 256,
        "data.max_response_length": 512,
        "actor_rollout_ref.actor.optim.lr": 1e-6,
        "actor_rollout_ref.actor.optim.weight_decay": 0.01,
        "actor_rollout_ref.actor.clip_ratio_c": 3.0,
        "algorithm.lam": 1.0,
    },
    "OpenRLHF": {
        "advantage_estimator": "gae",
        "rollout_batch_size": 1024,
        "n_samples_per_prompt": 1,
        "train_batch_size": 128,
        "generate_max_len": 1024,
        "actor_learning_rate": 1e-6,
        "lambd": 1.0,
        "lr_scheduler": "cosine_with_min_lr",
        "adam_betas": [0.9, 0.95],
    },
}
"""Defaults of the libraries that differ from ours (verl 0.9, OpenRLHF 0.9)."""
RENAMED = {
    **{"model": "model_name_or_path", "dataset": "dataset_name", "lora_rank": "lora_r"},
    **{"target_modules": "lora_target_modules", "system": "system_prompt"},
    **{"model_id_or_path": "model_name_or_path"},
}
"""Names of ms-swift for TRL's."""
SWIFT_DEFAULTS = {
    **{"per_device_train_batch_size": 1, "lr_scheduler_type": "cosine", "weight_decay": 0.1},
    **{"adam_beta2": 0.95, "lora_r": 8, "lora_alpha": 32, "lora_target_modules": "all-linear"},
}
TRAINERS = {"grpo": "grpo_token", "dpo": "dpo", "ppo": "ppo", "sft": "sft", "rloo": "rloo"}
"""Commands of TRL and types of ms-swift, and our algorithms."""


def swift(content: Mapping[str, Any], processes: int) -> Translation:
    """Translate the arguments of `swift rlhf` or `swift sft`, which are TRL's with more names."""
    kind = choice(Fields({"rlhf_type": content.get("rlhf_type", "sft")}), "rlhf_type", TRAINERS)
    tuner = content.get("tuner_type", content.get("train_type", "lora"))
    named = {RENAMED.get(key, key): value for key, value in content.items()}
    rate = {"learning_rate": 1e-4 if tuner == "lora" else 1e-5} if kind != "ppo" else {}
    given = {**SWIFT_DEFAULTS, **rate, **named, "use_peft": tuner == "lora"}
    for key in ("rlhf_type", "tuner_type", "train_type"):
        given.pop(key, None)
    if kind == "grpo_token":
        given = {"beta": 0.04, "temperature": 0.9, **given}
    if str(given.get("torch_dtype")) in ("bfloat16", "float16"):
        given["bf16" if given.pop("torch_dtype") == "bfloat16" else "fp16"] = True
    return trl.translate(given, processes, kind, "ms-swift")


def translate(library: str, content: Mapping[str, Any], processes: int) -> Translation:
    """Translate the options of verl or OpenRLHF, dotted where they are nested."""
    fields, into = Fields({**DEFAULTS[library], **dict(Fields(content).left)}), Translation(library)
    estimator = "algorithm.adv_estimator" if library == "verl" else "advantage_estimator"
    into.type("model=gpt2", "model.finetune=full", "learning_rate.final_scale=1.0")
    if library == "OpenRLHF":
        into.type("model.text_role=none")  # apply_chat_template changes it
    row = next(row for row in rows_of(library) if row.name == estimator.rpartition(".")[2])
    into.type(choice(fields, estimator, row.choices))
    for name, key in SIZES[library].items():
        if (value := fields.take(name)) is not None:
            into.set(key, value)
    _penalty(fields, into, library)
    total = "trainer.total_epochs" if library == "verl" else "num_episodes"
    if "iterations" not in into.words:
        reason = "iterations=PASSES x PROMPTS / prompts_per_iteration, and a warm-up in iterations"
        into.drop(total, fields.take(total, 1), reason)
    fields.take(total)
    if processes > 1:
        into.type("hardware=ddp", f"hardware.processes={processes}")
    translate_rest(fields, into, (library,), {})
    if into.words.get("engine") == "engine=vllm" and _several(into):
        into.drop(
            "engine", "vllm", "one process drives it; with several the model's own loop draws"
        )
        for key in [key for key in into.words if key.partition(".")[0] == "engine"]:
            del into.words[key]
    if into.words.get("hardware.processes", "").endswith("=1"):
        del into.words["hardware"], into.words["hardware.processes"]
    return into


def _several(into: Translation) -> bool:
    """Whether a command has several processes."""
    word = into.words.get("hardware.processes", "=1")
    return "hardware" in into.words and not word.endswith("=1")


def _penalty(fields: Fields, into: Translation, library: str) -> None:
    """The KL penalty: in the loss, in the reward, or none."""
    prefix = "actor_rollout_ref.actor." if library == "verl" else ""
    in_loss = fields.take(f"{prefix}use_kl_loss", False)
    in_reward = fields.take("algorithm.use_kl_in_reward", False) or library == "OpenRLHF"
    if not in_loss and not in_reward:
        into.type("regularizer.placement=none")
        return
    into.type(f"regularizer.placement={'loss' if in_loss else 'reward'}")
    default = 0.001 if library == "verl" else 0.01
    is_k3 = library == "verl" and in_loss  # its kl_loss_type, low_var_kl
    into.type(f"regularizer.coefficient.value={default}")
    into.type(f"regularizer.estimator={'k3' if is_k3 else 'k1'}")
