"""YAML and JSON files of TRL's configurations (GRPO, RLOO, DPO, PPO, DDPO) as a command."""

from collections.abc import Mapping
from typing import Any

from rlfactory.config.composites import is_function
from rlfactory.config.named_models import is_hub_id
from rlfactory.config.options import options
from rlfactory.config.peers import flow_grpo, values
from rlfactory.config.peers.names_file import our_option
from rlfactory.config.peers.translation import Fields, Translation, translate_rest
from rlfactory.config.words import typed_value

NAME = "TRL"
MARKS = {
    "ddpo": ("sample_num_steps", "train_learning_rate", "train_clip_range"),
    "ppo": ("num_ppo_epochs", "cliprange", "total_episodes", "response_length", "vf_coef"),
    "rloo": ("rloo_k",),
    "grpo_token": (
        *("num_generations", "max_completion_length", "num_iterations", "reward_funcs"),
        *("scale_rewards", "epsilon_high", "steps_per_generation", "generation_batch_size"),
    ),
    "dpo": (
        *("precompute_ref_log_probs", "f_divergence_type", "ld_alpha", "label_smoothing"),
        *("beta", "rpo_alpha", "loss_weights"),
    ),
    "sft": (
        *("packing", "assistant_only_loss", "completion_only_loss", "dataset_text_field"),
        *("max_seq_length", "max_length", "eval_packing", "per_device_train_batch_size"),
    ),
}
"""Keys by which a file shows its trainer, and the option of `algo`."""
NOTHING = {
    "use_vllm": "choose engine=vllm or engine=vllm_server",
    "logging_steps": "metrics are written in each iteration",
    "remove_unused_columns": "columns are metadata of the prompts",
    "push_to_hub": "rlfactory export",
    "dataset_config": "prompts.split",
    "attn_implementation": "torch's own",
    "trust_remote_code": "models of transformers itself",
    "local_rollout_forward_batch_size": "sample_batch",
    "seed_worker": "all random numbers follow from seed",
}
DEFAULTS = {
    "grpo_token": {"num_generations": 8, "max_completion_length": 512, "learning_rate": 1e-6},
    "rloo": {"num_generations": 2, "max_completion_length": 512, "learning_rate": 1e-6},
    "dpo": {"max_length": 1024, "learning_rate": 1e-6},
    "sft": {"learning_rate": 2e-5},
    "ppo": {"num_ppo_epochs": 4, "kl_coef": 0.05, "response_length": 53, "learning_rate": 3e-6}
    | {"temperature": 0.7, "vf_coef": 0.1, "lam": 0.95},
}
"""Defaults of TRL (1.16; PPO: 1.12) that differ from ours."""
DDPO_DEFAULTS = {
    "sample_num_batches_per_epoch": 2,
    "sample_guidance_scale": 5.0,
    "train_learning_rate": 3e-4,
    "train_adv_clip_max": 5.0,
    "num_epochs": 100,
    "mixed_precision": "fp16",
}
BATCH = 8
"""TRL's default of `per_device_train_batch_size`."""


def is_config(content: Mapping[str, Any]) -> bool:
    """Whether a file has keys of a trainer of TRL."""
    return _trainer(content) is not None


def _trainer(content: Mapping[str, Any]) -> str | None:
    """The option of `algo` for the trainer of a file."""
    losses = content.get("loss_type")
    if {*([losses] if isinstance(losses, str) else losses or [])} & {*PAIR_LOSSES}:
        return "dpo"
    return next((a for a, keys in MARKS.items() if any(key in content for key in keys)), None)


def translate(
    content: Mapping[str, Any], processes: int, trainer: str | None = None, peer: str = NAME
) -> Translation:
    """Translate a configuration.

    Args:
        content: its keys.
        processes: the number of GPUs that it is for.
        trainer: the option of `algo`, where the keys need not show it.
        peer: the library, whose names are TRL's.
    """
    algo = trainer or _trainer(content)
    assert algo is not None
    if algo == "ddpo":
        return _ddpo(content, processes)
    if algo == "grpo_token" and content.get("rloo"):
        algo = "rloo"
    fields, into = Fields({**DEFAULTS[algo], **content}), Translation(peer)
    path = str(fields.take("model_name_or_path", "openai-community/gpt2"))
    path = str(fields.take("sft_model_path", path))  # PPO: the policy and its reference
    into.type(f"algo={algo}", *values.model(path, {})[0], "learning_rate.final_scale=0.0")
    if peer == NAME:
        into.type("model.text_role=none")  # a prompt that is a text is not put into a template
    if algo in ("sft", "dpo"):
        _supervised(fields, into, processes)
    if algo == "sft":
        _sft(fields, into)
    elif algo == "dpo":
        _dpo(fields, into)
    elif algo == "ppo":
        _ppo(fields, into, processes)
    else:
        _grouped(fields, into, processes)
    _rewards(fields, into)
    if (data := fields.take("dataset_name")) is not None:
        data = data[0] if isinstance(data, list) and len(data) == 1 else data
        into.type("prompts=datasets")
        into.set("prompts.path", typed_value(data))
        if (split := fields.take("dataset_train_split")) is not None:
            into.set("prompts.split", str(split))
    if fields.take("bf16"):
        into.type("precision=bf16")
    if fields.take("fp16"):
        into.type("precision=fp16")
    if processes > 1:
        into.type("hardware=ddp", f"hardware.processes={processes}")
    if not fields.take("use_peft", False):
        into.type("model.finetune=full")
        for key in [key for key in fields.left if key.startswith("lora_")]:
            into.drop(key, fields.take(key), "use_peft is not set")
    else:
        into.type("model.finetune=lora")
    _length(fields, into)
    least = fields.take("lr_scheduler_kwargs.min_lr_rate")
    warm = fields.left.get("warmup_steps") or 0
    if 0 < warm < 1:
        fields.left["warmup_ratio"] = fields.take("warmup_steps")  # a share, in newer releases
    elif warm:
        fields.take("warmup_ratio")  # the steps count
    translate_rest(fields, into, (peer, NAME, "HF Trainer", "PEFT"), NOTHING)
    if least is not None:
        into.set("learning_rate.final_scale", least)
    return into


def _length(fields: Fields, into: Translation) -> None:
    """The iterations of optimizer steps or of passes over the data."""
    steps, passes = fields.take("max_steps", -1), fields.take("num_train_epochs")
    if steps > 0:
        per_iteration = _number(into, "updates_per_iteration") * _number(into, "epochs")
        into.set("iterations", max(1, round(steps / per_iteration)))
    elif "iterations" not in into.words:
        shown = 3 if passes is None else passes
        reason = "iterations=PASSES x PROMPTS / prompts_per_iteration, and a warm-up in iterations"
        into.drop("num_train_epochs", shown, reason)


def _number(into: Translation, key: str) -> int:
    """A number that was set; 1 where it was not."""
    return int(into.words.get(key, f"{key}=1").partition("=")[2])


def _batch(fields: Fields, processes: int) -> tuple[int, int]:
    """Samples of an optimizer step, and those of one forward pass of one process."""
    per_device = fields.take("per_device_train_batch_size", BATCH)
    return per_device * processes * fields.take("gradient_accumulation_steps", 1), per_device


def _grouped(fields: Fields, into: Translation, processes: int) -> None:
    """Sizes of GRPO and RLOO: completions of a generation batch, in groups."""
    step, per_device = _batch(fields, processes)
    groups = (fields.take("rloo_k"), fields.take("num_generations"))
    group = groups[0] or groups[1]
    accumulated = step // (per_device * processes)
    per_generation = fields.take("steps_per_generation") or accumulated
    samples = fields.take("generation_batch_size") or per_device * processes * per_generation
    into.set("group_size", group)
    into.set("prompts_per_iteration", max(1, samples // group))
    into.set("updates_per_iteration", max(1, samples // step))
    into.set("micro_batch", per_device)
    into.set("epochs", fields.take("num_iterations", 1))
    into.notes.append(f"{samples} completions an iteration, {step} an optimizer step")
    if into.words["algo"] == "algo=grpo_token":
        _surrogate(fields, into)
    beta = fields.take("beta", 0.0 if into.words["algo"] == "algo=grpo_token" else 0.05)
    if beta:
        into.set("regularizer.coefficient.value", beta)
        into.type("regularizer.estimator=k3")
    else:
        into.type("regularizer.placement=none")


LOSSES = {
    "grpo": ("algo.aggregation=sequence",),
    "dr_grpo": ("algo.aggregation=constant",),
    "luspo": ("algo.aggregation=sum",),
    "cispo": ("algo.surrogate=cispo", "algo.clip_range=1.0"),
    "sapo": ("algo.surrogate=sapo", "algo.aggregation=sequence"),
    "bnpo": (),
    "dapo": (),
}
"""What says the same as a `loss_type`; the mean over all tokens is ours."""
SCALES = {"group": "group", True: "group", "batch": "global", "none": "none", False: "none"}


def _surrogate(fields: Fields, into: Translation) -> None:
    """GRPO's options of the loss."""
    kind = str(fields.take("loss_type", "dapo"))
    if kind in LOSSES:
        into.type(*LOSSES[kind])
    else:
        into.drop("loss_type", kind, "algo.surrogate, algo.aggregation")
    high = fields.take("epsilon_high")
    if kind == "cispo":
        fields.take("epsilon")
        into.set("algo.clip_high", round((1.2 if high is None else high) - 1, 6))
    elif high is not None:
        into.set("algo.clip_high", high)
    if (bound := fields.take("delta")) is not None:
        into.set("algo.dual_clip", bound)
    if fields.take("importance_sampling_level", "token") == "sequence":
        into.type("algo.ratio=sequence")
    if (scale := fields.take("scale_rewards")) is not None:
        into.type(f"algo.std={SCALES[scale]}")
    if fields.take("mask_truncated_completions"):
        into.type("algo.mask_truncated=true")


def _ppo(fields: Fields, into: Translation, processes: int) -> None:
    """Sizes of PPO: a batch of prompts with one response each."""
    samples, per_device = _batch(fields, processes)
    minibatches = fields.take("num_mini_batches", 1)
    into.set("prompts_per_iteration", samples * minibatches)
    into.set("updates_per_iteration", minibatches)
    into.set("micro_batch", per_device)
    into.set("epochs", fields.take("num_ppo_epochs"))
    into.type("group_size=1", "regularizer.placement=reward")
    into.type(f"regularizer.estimator={fields.take('kl_estimator', 'k1')}")
    if (episodes := fields.take("total_episodes")) is not None:
        into.set("iterations", max(1, round(episodes / (samples * minibatches))))
    _critic(fields, into)
    # its whitening divides the variance by n - 1, and it never clips gradients
    into.type("algo.whiten_unbiased=true", "max_grad_norm=1e9")
    fields.take("max_grad_norm")


PAIR_LOSSES = ("sigmoid", "ipo", "hinge", "robust")


def _supervised(fields: Fields, into: Translation, processes: int) -> None:
    """An optimizer step on rows of the data is an iteration."""
    rows, per_device = _batch(fields, processes)
    pairs = into.words["algo"] == "algo=dpo"
    into.set("prompts_per_iteration", rows)
    into.type("updates_per_iteration=1")
    into.set("micro_batch", 2 * per_device if pairs else per_device)
    kind = "pairs" if pairs else "rows"
    into.notes.append(f"{rows} {kind} an iteration, which is one optimizer step")


def _sft(fields: Fields, into: Translation) -> None:
    """Whole texts, or prompts with completions."""
    into.type("group_size=1")
    if (column := fields.take("dataset_text_field")) is not None:
        into.type("algo.column=null")
        into.set("prompts.column", str(column))
    else:
        into.notes.append("columns: prompts.column and algo.column; messages are read as they are")
    length = fields.take("max_length", fields.take("max_seq_length", 1024))
    if length is not None:
        into.set("algo.length", length)


def _dpo(fields: Fields, into: Translation) -> None:
    """The loss of pairs."""
    given = fields.take("loss_type", "sigmoid")
    losses = [given] if isinstance(given, str) else list(given)
    weights = dict(zip(losses, fields.take("loss_weights") or [1.0] * len(losses), strict=True))
    main = [name for name in losses if name in PAIR_LOSSES]
    if len(main) != 1 or weights[main[0]] != 1 or {*losses} - {*main, "sft"}:
        into.drop("loss_type", given, f"algo.loss_type is one of {', '.join(PAIR_LOSSES)}")
    else:
        into.type(f"algo.loss_type={main[0]}")
    if "sft" in weights:
        into.set("algo.sft_weight", weights["sft"])
    into.set("algo.beta", fields.take("beta", 0.1))
    if (smoothing := fields.take("label_smoothing")) and main == ["robust"]:
        into.set("algo.label_smoothing", smoothing)
    length = fields.take("max_length", 1024)
    if length is not None:
        into.set("algo.length", length)


def _critic(fields: Fields, into: Translation) -> None:
    """A value model from the reward model; without one a linear layer that trains the network."""
    scorer = str(fields.left.get("reward_model_path"))
    if scorer not in options("reward") and is_hub_id(scorer):
        into.type(f"model.value_path={scorer}", "algo.score_placement=after_end")
        into.type("reward.with_end=true")
    else:
        into.type("model.value_head=linear", "model.value_detach=false")
    into.type(f"model.value_lr={typed_value(fields.left.get('learning_rate'))}")


def _rewards(fields: Fields, into: Translation) -> None:
    """Rewards by name or import path, with weights in their order, or one reward model."""
    given = fields.take("reward_model_path") or fields.take("reward_funcs")
    names = [str(name) for name in (given if isinstance(given, list) else [given] if given else [])]
    weights = fields.take("reward_weights")
    found = [_reward(name) for name in names]
    if found == [""] and is_hub_id(names[0]):
        into.type("reward=reward_model", f"reward.path={names[0]}")
        return
    left = [name for name, ours in zip(names, found, strict=True) if not ours]
    typed = [ours for ours in found if ours]
    if len(typed) > 1 or (typed and weights and not left):
        into.type(f"reward=[{','.join(typed)}]")
    elif typed:
        into.type(f"reward={typed[0]}")
    if weights and typed and not left:
        into.type(f"reward.weights=[{','.join(f'{weight:g}' for weight in weights)}]")
    elif weights:
        into.drop("reward_weights", weights, "reward.weights=[...], in the order of reward=[...]")
    if left:
        reason = "of your own: reward=FILE.py:NAME; several: reward=[FILE.py:NAME,length]"
        into.drop("reward_funcs", left, reason)
    if names and not typed:
        into.notes.append("no reward is translated: the model's default one is trained on")


def _reward(name: str) -> str:
    """What to type for a reward: an option, or a function by its import path; empty for others."""
    if (option := our_option("reward", name)) in options("reward"):
        return option
    if is_function(name):
        return name
    return ":".join(name.rsplit(".", 1)) if "." in name and "/" not in name else ""


def _ddpo(content: Mapping[str, Any], processes: int) -> Translation:
    """DDPOConfig: ddpo-pytorch's options, flattened with underscores."""
    nested: dict[str, Any] = {"sample": {"eta": 1.0}, "train": {}, "pretrained": {}}
    tracker: dict[str, Any] = {}
    for key, value in {**DDPO_DEFAULTS, **content}.items():
        head, _, name = key.partition("_")
        if head in ("sample", "train"):
            nested[head][name] = value
        elif key.startswith("per_prompt_stat_tracking_"):
            tracker[key.removeprefix("per_prompt_stat_tracking_")] = value
        else:
            nested[key] = value
    if nested.get("per_prompt_stat_tracking") and tracker:
        nested["per_prompt_stat_tracking"] = tracker
    path = nested.pop("pretrained_model", "stable-diffusion-v1-5/stable-diffusion-v1-5")
    nested["pretrained"] = {"model": path}
    nested.setdefault("reward_fn", "aesthetic_score")
    nested.setdefault("prompt_fn", "simple_animals")
    return flow_grpo.from_values(nested, processes, NAME)
