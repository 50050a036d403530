"""What is computed of several options of TRL: sizes, lengths, losses, rewards.

Functions are as those of `computed`.
"""

from typing import Any

from rlfactory.config.composites import is_function
from rlfactory.config.named_models import is_hub_id
from rlfactory.config.options import options
from rlfactory.config.peers.computed import set_sizes
from rlfactory.config.peers.importer import Translation
from rlfactory.config.peers.names import our_option
from rlfactory.config.words import typed_value

PAIR_LOSSES = ("sigmoid", "ipo", "hinge", "robust")
BATCH = 8
"""TRL's default of `per_device_train_batch_size`."""


def _step(made: Translation) -> tuple[int, int]:
    """TRL's samples of an optimizer step, and those of one forward pass of one process."""
    per_device = made.take("per_device_train_batch_size", BATCH)
    accumulated = made.take("gradient_accumulation_steps", 1)
    return per_device * made.given["processes"] * accumulated, per_device


def grouped_sizes(_: Any, made: Translation) -> None:
    """Sizes of TRL's GRPO and RLOO: completions of a generation batch, in groups."""
    step, per_device = _step(made)
    of_processes = per_device * made.given["processes"]
    per_generation = made.take("steps_per_generation") or step // of_processes
    samples = made.take("generation_batch_size") or of_processes * per_generation
    rloo, grpo = made.take("rloo_k"), made.take("num_generations")
    group = rloo or grpo
    set_sizes(made, group, samples, max(1, samples // step))
    made.set(micro_batch=per_device, epochs=made.take("num_iterations", 1))
    made.notes.append(f"{samples} completions an iteration, {step} an optimizer step")


def ppo_sizes(_: Any, made: Translation) -> None:
    """Sizes of TRL's PPO: a batch of prompts with one response each."""
    samples, per_device = _step(made)
    updates = made.take("num_mini_batches", 1)
    made.set(prompts_per_iteration=samples * updates, updates_per_iteration=updates)
    made.set(micro_batch=per_device, epochs=made.take("num_ppo_epochs"))
    if (episodes := made.take("total_episodes")) is not None:
        made.set(iterations=max(1, round(episodes / (samples * updates))))


def supervised_sizes(_: Any, made: Translation) -> None:
    """An optimizer step on rows of the data, which is an iteration."""
    rows, per_device = _step(made)
    are_pairs = made.value("algo") == "dpo"
    made.set(prompts_per_iteration=rows, updates_per_iteration=1)
    made.set(micro_batch=(1 + are_pairs) * per_device)
    kind = "pairs" if are_pairs else "rows"
    made.notes.append(f"{rows} {kind} an iteration, which is one optimizer step")


def iterations_of_steps(_: Any, made: Translation) -> None:
    """The iterations of TRL's optimizer steps or passes over the data."""
    steps, passes = made.take("max_steps", -1), made.take("num_train_epochs")
    if steps > 0:
        sizes = made.sizes()
        per_iteration = sizes["updates_per_iteration"] * sizes["epochs"]
        made.set(iterations=max(1, round(steps / per_iteration)))
    elif "iterations" not in made.words:
        reason = "iterations=PASSES x PROMPTS / prompts_per_iteration, and a warm-up in iterations"
        made.drop("num_train_epochs", 3 if passes is None else passes, reason)


def warm_up(_: Any, made: Translation) -> None:
    """TRL's warm-up, in steps that count before a share; a share itself in newer releases."""
    steps = made.left.get("warmup_steps") or 0
    if 0 < steps < 1:
        made.left["warmup_ratio"] = made.take("warmup_steps")
    elif steps:
        made.take("warmup_ratio")


def loss_of_pairs(given: Any, made: Translation) -> None:
    """TRL's losses of DPO: one of pairs, and a supervised one beside it."""
    losses = [given] if isinstance(given, str) else list(given)
    given_weights = made.take("loss_weights") or [1.0] * len(losses)
    weights = dict(zip(losses, given_weights, strict=True))
    main = [name for name in losses if name in PAIR_LOSSES]
    if len(main) != 1 or weights[main[0]] != 1 or {*losses} - {*main, "sft"}:
        made.drop("loss_type", given, f"algo.loss_type is one of {', '.join(PAIR_LOSSES)}")
    else:
        made.type(f"algo.loss_type={main[0]}")
    if "sft" in weights:
        made.type(f"algo.sft_weight={weights['sft']}")


def critic(_: Any, made: Translation) -> None:
    """A value model from the reward model; without one a linear layer that trains the network."""
    scorer = str(made.left.get("reward_model_path"))
    if scorer not in options("reward") and is_hub_id(scorer):
        made.type(f"model.value_path={scorer}", "algo.score_placement=after_end")
        made.type("reward.with_end=true")
    else:
        made.type("model.value_head=linear", "model.value_detach=false")
    made.type(f"model.value_lr={typed_value(made.left.get('learning_rate'))}")


def rewards_of_texts(given: Any, made: Translation) -> None:
    """TRL's rewards by name or import path, with weights in their order, or one reward model."""
    names = [str(name) for name in (given if isinstance(given, list) else [given])]
    weights, found = made.take("reward_weights"), [_text_reward(name) for name in names]
    if found == [""] and is_hub_id(names[0]):
        made.type("reward=reward_model", f"reward.path={names[0]}")
        return
    left = [name for name, ours in zip(names, found, strict=True) if not ours]
    typed = [ours for ours in found if ours]
    if len(typed) > 1 or (typed and weights and not left):
        made.type(f"reward=[{','.join(typed)}]")
    elif typed:
        made.type(f"reward={typed[0]}")
    if weights and typed and not left:
        made.type(f"reward.weights=[{','.join(f'{weight:g}' for weight in weights)}]")
    elif weights:
        reason = "reward.weights=[...], in the order of reward=[...]"
        made.drop("reward_weights", weights, reason)
    if left:
        reason = "of your own: reward=FILE.py:NAME; several: reward=[FILE.py:NAME,length]"
        made.drop("reward_funcs", left, reason)
    if not typed:
        made.notes.append("no reward is translated: the model's default one is trained on")


def _text_reward(name: str) -> str:
    """What to type for a reward: an option, or a function by its import path; empty for others."""
    if (option := our_option("reward", name)) in options("reward"):
        return option
    if is_function(name):
        return name
    return ":".join(name.rsplit(".", 1)) if "." in name and "/" not in name else ""
