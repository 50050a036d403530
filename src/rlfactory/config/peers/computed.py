"""What is computed of several options of another library: sizes, lengths, windows, rewards.

Functions take the value of a row's key and the translation that is being made.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory.config.composites import is_function
from rlfactory.config.named_models import KINDS, is_hub_id
from rlfactory.config.options import options
from rlfactory.config.peers.importer import Importer
from rlfactory.config.peers.names import our_option
from rlfactory.config.problems import PlanError, Problem
from rlfactory.config.words import typed_value

MOVED = {"runwayml/stable-diffusion-v1-5": "stable-diffusion-v1-5/stable-diffusion-v1-5"}
"""Models that have another hub id by now."""
AVERAGES = {
    "ema_decay": "decay",
    "ema_decay_schedule": "schedule",
    "ema_update_interval": "interval",
    "warmup_steps": "warmup",
    "flat_steps": "flat",
    "ramp_rate": "ramp",
}
"""Flow-Factory's keys of the averaged weights, and ours below `ema` and `old`."""
PAIR_LOSSES = ("sigmoid", "ipo", "hinge", "robust")
BATCH = 8
"""TRL's default of `per_device_train_batch_size`."""


def model_of_name(path: Any, made: Importer) -> None:
    """The option of an image model by a part of its id."""
    option = next((o for part, o in KINDS.items() if part in str(path).lower()), None)
    if option is None:
        message = f"{path} is of a kind that is not trained here"
        raise PlanError([Problem("pretrained.model", message)])
    made.into.type(f"model={option}", f"model.path={MOVED.get(path, path)}")


def data_sets(sources: Any, made: Importer) -> None:
    """The first of several data sets."""
    made.left["data.dataset_dir"] = sources[0].get("dataset_dir")
    if len(sources) > 1:
        others = [source.get("dataset_dir") for source in sources[1:]]
        made.into.drop("data.datasets", others, "one data set")


def prompts_of_folder(place: Any, made: Importer, folder: Path = Path()) -> None:
    """A folder of prompts `train.txt` or `train.jsonl`, by its name or its files."""
    name = str(place).rstrip("/").rpartition("/")[2].lower()
    known = {"pickscore": "pick_a_pic", "ocr": "signs", "geneval": "geneval"}
    if name in known:
        made.into.type(f"prompts={known[name]}")
        return
    kind = "txt" if (folder / place / "train.txt").is_file() else "jsonl"
    made.into.type("prompts=file", f"prompts.path={place}/train.{kind}")
    if (folder / place / f"test.{kind}").is_file():
        made.into.type(f"prompts.eval_path={place}/test.{kind}")


def combined(weights: Mapping[str, float], made: Importer) -> None:
    """Rewards with weights."""
    if len(weights) < 2:
        made.into.type(*(f"reward={name}" for name in weights))
        return
    made.into.type("reward=combine", f"reward.of=[{','.join(weights)}]")
    made.into.type(*(f"reward.weights.{n}={w:g}" for n, w in weights.items() if w != 1))


def rewards(given: Any, made: Importer) -> None:
    """Flow-Factory's rewards: names with weights, and options that are left out."""
    entries = _entries(given)
    combined({_reward_of(e): float(e.get("weight", 1.0)) for e in entries}, made)
    for option, value in (pair for entry in entries for pair in entry.items()):
        if option not in ("name", "reward_model", "weight"):
            made.into.drop(f"rewards.{option}", value, "scoring.*, or options of the reward")


def eval_rewards(given: Any, made: Importer) -> None:
    """The names of Flow-Factory's rewards of evaluations."""
    if names := [_reward_of(entry) for entry in _entries(given)]:
        made.into.set("eval_rewards.of", f"[{','.join(names)}]")


def _entries(given: Any) -> list[Mapping[str, Any]]:
    return [given] if isinstance(given, Mapping) and given else list(given or [])


def _reward_of(entry: Mapping[str, Any]) -> str:
    return our_option("reward", str(entry.get("reward_model")).lower())


def reward_function(given: Any, made: Importer) -> None:
    """The reward of flow_grpo and ddpo-pytorch: a name, or names with weights."""
    weights = {given: 1.0} if isinstance(given, str) else dict(given or {})
    named = {our_option("reward", name): float(weight) for name, weight in weights.items()}
    combined({("geneval_flow_grpo" if n == "geneval" else n): w for n, w in named.items()}, made)


def window_of_steps(steps: Any, made: Importer) -> None:
    """A window that draws of the range of some steps."""
    count = made.given.get("scheduler.num_sde_steps", made.given.get("train.num_train_steps"))
    if not steps:
        return
    low, high = min(steps), max(steps) + 1
    made.into.type("window=random_subset", f"window.low={low}", f"window.high={high}")
    made.into.set("window.size", count or 1)
    if sorted(steps) != list(range(low, high)):
        made.into.notes.append(f"scheduler.sde_steps {steps}: all steps of their range are drawn")


def window_or_share(_: Any, made: Importer) -> None:
    """flow_grpo's window of steps, or the share of them that is trained."""
    steps, share = made.given["sample.num_steps"], made.take("train.timestep_fraction", 1.0)
    size, place = made.take("sample.sde_window_size"), made.take("sample.sde_window_range")
    if not size:
        made.into.type("window=all", f"window.skip_last={steps - int(steps * share)}")
        return
    low, high = place or (0, steps)
    if made.value("model") == "qwen_image" and size == 2:
        low, high = 3, 5
        told = "their script for Qwen-Image trains the steps 3 and 4 in any case"
        made.into.notes.append(told)
    made.into.type("window=random_contiguous", f"window.size={size}")
    made.into.type(f"window.low={low}", f"window.high={high}")


def times_of_strategy(strategy: Any, made: Importer) -> None:
    """The times that Flow-Factory's algorithms on the forward process learn at."""
    # `time_type` is its name until the shift changed its direction
    is_former = "train.time_type" in made.given
    count, share = made.take("train.num_train_timesteps"), made.take("train.timestep_range")
    strategy = str(strategy).lower()
    if strategy == "none":
        return
    made.into.type(f"times={strategy}", "times.shared=batch", f"times.count={count or 'null'}")
    if strategy.startswith("discrete"):
        if share is not None:
            made.into.type("times.space=sigma", f"times.fraction={share}")
    elif (shift := made.take("train.time_shift")) is not None:
        made.into.set("times.shift", float(shift))
        made.into.set("times.toward", "noisy" if is_former else "clean")


def first_optimizer(groups: Any, made: Importer) -> None:
    """The options of the first group of parameters."""
    made.left |= {f"optimizers.{key}": value for key, value in groups[0].items()}


def averages(_: Any, made: Importer) -> None:
    """Flow-Factory's averaged weights, which are evaluated, and of NFT and AWM the old policy."""
    given = {ours: made.take(f"train.{name}") for name, ours in AVERAGES.items()}
    given["schedule"] = given["schedule"] or "power"  # theirs, where none is named
    if not given["decay"]:
        made.into.type("evaluation.weights=policy")
        return
    for name in ("ema", "old") if made.value("algo") in ("nft", "awm") else ("ema",):
        made.into.type(f"{name}.clock=iteration", f"{name}.update=iteration")
        for key, value in given.items():
            if value is not None:
                made.into.set(f"{name}.{key}", value)
    made.into.type("evaluation.weights=ema")


def sizes_by_gpu(_: Any, made: Importer) -> None:
    """Prompts of an iteration and updates, from flow_grpo's batches that are counted by GPU."""
    former = made.take("sample.batch_size", 1)
    per_gpu = made.take("sample.train_batch_size") or former
    batches, gpus = made.take("sample.num_batches_per_epoch", 1), made.given["processes"]
    made.take("sample.mini_num_image_per_prompt")
    group, samples = made.take("sample.num_image_per_prompt"), gpus * per_gpu * batches
    train = made.take("train.batch_size", per_gpu)
    step = train * made.take("train.gradient_accumulation_steps", 1)
    made.into.set("group_size", group)
    made.into.set("prompts_per_iteration", max(1, samples // group))
    made.into.set("updates_per_iteration", max(1, per_gpu * batches // step))
    if samples % group:
        made.into.notes.append(f"{samples} samples an iteration are no whole groups of {group}")
    made.into.notes.append(
        f"{gpus} x {per_gpu} x {batches} samples an iteration; train.batch_size {train} is"
        " micro_batch, which only affects memory"
    )


def _step(made: Importer) -> tuple[int, int]:
    """TRL's samples of an optimizer step, and those of one forward pass of one process."""
    per_device = made.take("per_device_train_batch_size", BATCH)
    accumulated = made.take("gradient_accumulation_steps", 1)
    return per_device * made.given["processes"] * accumulated, per_device


def grouped_sizes(_: Any, made: Importer) -> None:
    """Sizes of TRL's GRPO and RLOO: completions of a generation batch, in groups."""
    step, per_device = _step(made)
    of_processes = per_device * made.given["processes"]
    per_generation = made.take("steps_per_generation") or step // of_processes
    samples = made.take("generation_batch_size") or of_processes * per_generation
    groups = made.take("rloo_k"), made.take("num_generations")
    group = groups[0] or groups[1]
    made.into.set("group_size", group)
    made.into.set("prompts_per_iteration", max(1, samples // group))
    made.into.set("updates_per_iteration", max(1, samples // step))
    made.into.set("micro_batch", per_device)
    made.into.set("epochs", made.take("num_iterations", 1))
    made.into.notes.append(f"{samples} completions an iteration, {step} an optimizer step")


def ppo_sizes(_: Any, made: Importer) -> None:
    """Sizes of TRL's PPO: a batch of prompts with one response each."""
    samples, per_device = _step(made)
    updates = made.take("num_mini_batches", 1)
    made.into.set("prompts_per_iteration", samples * updates)
    made.into.set("updates_per_iteration", updates)
    made.into.set("micro_batch", per_device)
    made.into.set("epochs", made.take("num_ppo_epochs"))
    if (episodes := made.take("total_episodes")) is not None:
        made.into.set("iterations", max(1, round(episodes / (samples * updates))))


def supervised_sizes(_: Any, made: Importer) -> None:
    """An optimizer step on rows of the data, which is an iteration."""
    rows, per_device = _step(made)
    are_pairs = made.value("algo") == "dpo"
    made.into.set("prompts_per_iteration", rows)
    made.into.type("updates_per_iteration=1", f"micro_batch={(1 + are_pairs) * per_device}")
    kind = "pairs" if are_pairs else "rows"
    made.into.notes.append(f"{rows} {kind} an iteration, which is one optimizer step")


def iterations_of_steps(_: Any, made: Importer) -> None:
    """The iterations of TRL's optimizer steps or passes over the data."""
    steps, passes = made.take("max_steps", -1), made.take("num_train_epochs")
    if steps > 0:
        sizes = made.sizes()
        per_iteration = sizes["updates_per_iteration"] * sizes["epochs"]
        made.into.set("iterations", max(1, round(steps / per_iteration)))
    elif "iterations" not in made.into.words:
        reason = "iterations=PASSES x PROMPTS / prompts_per_iteration, and a warm-up in iterations"
        made.into.drop("num_train_epochs", 3 if passes is None else passes, reason)


def warm_up(_: Any, made: Importer) -> None:
    """TRL's warm-up, in steps that count before a share; a share itself in newer releases."""
    steps = made.left.get("warmup_steps") or 0
    if 0 < steps < 1:
        made.left["warmup_ratio"] = made.take("warmup_steps")
    elif steps:
        made.take("warmup_ratio")


def loss_of_pairs(given: Any, made: Importer) -> None:
    """TRL's losses of DPO: one of pairs, and a supervised one beside it."""
    losses = [given] if isinstance(given, str) else list(given)
    given_weights = made.take("loss_weights") or [1.0] * len(losses)
    weights = dict(zip(losses, given_weights, strict=True))
    main = [name for name in losses if name in PAIR_LOSSES]
    if len(main) != 1 or weights[main[0]] != 1 or {*losses} - {*main, "sft"}:
        made.into.drop("loss_type", given, f"algo.loss_type is one of {', '.join(PAIR_LOSSES)}")
    else:
        made.into.type(f"algo.loss_type={main[0]}")
    if "sft" in weights:
        made.into.set("algo.sft_weight", weights["sft"])


def critic(_: Any, made: Importer) -> None:
    """A value model from the reward model; without one a linear layer that trains the network."""
    scorer = str(made.left.get("reward_model_path"))
    if scorer not in options("reward") and is_hub_id(scorer):
        made.into.type(f"model.value_path={scorer}", "algo.score_placement=after_end")
        made.into.type("reward.with_end=true")
    else:
        made.into.type("model.value_head=linear", "model.value_detach=false")
    made.into.type(f"model.value_lr={typed_value(made.left.get('learning_rate'))}")


def rewards_of_texts(given: Any, made: Importer) -> None:
    """TRL's rewards by name or import path, with weights in their order, or one reward model."""
    names = [str(name) for name in (given if isinstance(given, list) else [given])]
    weights, found = made.take("reward_weights"), [_text_reward(name) for name in names]
    if found == [""] and is_hub_id(names[0]):
        made.into.type("reward=reward_model", f"reward.path={names[0]}")
        return
    left = [name for name, ours in zip(names, found, strict=True) if not ours]
    typed = [ours for ours in found if ours]
    if len(typed) > 1 or (typed and weights and not left):
        made.into.type(f"reward=[{','.join(typed)}]")
    elif typed:
        made.into.type(f"reward={typed[0]}")
    if weights and typed and not left:
        made.into.type(f"reward.weights=[{','.join(f'{weight:g}' for weight in weights)}]")
    elif weights:
        reason = "reward.weights=[...], in the order of reward=[...]"
        made.into.drop("reward_weights", weights, reason)
    if left:
        reason = "of your own: reward=FILE.py:NAME; several: reward=[FILE.py:NAME,length]"
        made.into.drop("reward_funcs", left, reason)
    if not typed:
        told = "no reward is translated: the model's default one is trained on"
        made.into.notes.append(told)


def _text_reward(name: str) -> str:
    """What to type for a reward: an option, or a function by its import path; empty for others."""
    if (option := our_option("reward", name)) in options("reward"):
        return option
    if is_function(name):
        return name
    return ":".join(name.rsplit(".", 1)) if "." in name and "/" not in name else ""
