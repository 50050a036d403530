"""What is computed of several options of a library for images: sizes, windows, times, rewards.

Functions take the value of a row's key and the translation that is being made.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory.config.named_models import kind_of_id
from rlfactory.config.options import options
from rlfactory.config.peers.importer import Translation
from rlfactory.config.peers.names import our_option
from rlfactory.config.problems import PlanError, Problem

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
PROMPTS = {"pickscore": "pick_a_pic", "ocr": "signs", "geneval": "geneval", "geneval2": "geneval2"}
"""Flow-Factory's and UniRL's folders of prompts, and our options."""


def model_of_name(path: Any, made: Translation) -> None:
    """The option of an image model by a part of its id."""
    option = kind_of_id(str(path))
    if option is None:
        message = f"{path} is of a kind that is not trained here"
        raise PlanError([Problem("pretrained.model", message)])
    made.type(f"model={option}", f"model.path={MOVED.get(path, path)}")


def data_sets(sources: Any, made: Translation) -> None:
    """The first of several data sets."""
    made.left["data.dataset_dir"] = sources[0].get("dataset_dir")
    if len(sources) > 1:
        others = [source.get("dataset_dir") for source in sources[1:]]
        made.drop("data.datasets", others, "one data set")


def prompts_of_folder(place: Any, made: Translation, folder: Path = Path()) -> None:
    """A folder of prompts `train.txt` or `train.jsonl`, by its name or its files."""
    if option := PROMPTS.get(str(place).rstrip("/").rpartition("/")[2].lower()):
        made.type(f"prompts={option}")
        return
    kind = "txt" if (folder / place / "train.txt").is_file() else "jsonl"
    made.type("prompts=file", f"prompts.path={place}/train.{kind}")
    if (folder / place / f"test.{kind}").is_file():
        made.type(f"prompts.eval_path={place}/test.{kind}")


def prompts_of_file(file: Any, made: Translation) -> None:
    """A file of prompts, by the name of its folder or by itself, and one to evaluate on."""
    evaluated = made.take("data_source.args.run.eval_data_path")
    if option := PROMPTS.get(Path(file).parent.name):
        made.type(f"prompts={option}")
        return
    if not Path(file).suffix:
        made.notes.append(f"{file} is a variable that is not set: prompts.path is its file")
        file = evaluated = f"{file}.jsonl"
    made.type("prompts=file", f"prompts.path={file}")
    if evaluated not in (None, file):
        made.type(f"prompts.eval_path={evaluated}")


def combined(weights: Mapping[str, float], made: Translation) -> None:
    """Rewards with weights; one of the user's own in the place of none."""
    if len(weights) < 2:
        made.type(f"reward={next(iter(weights), 'FILE.py:NAME')}")
        return
    made.type("reward=combine", f"reward.of=[{','.join(weights)}]")
    made.type(*(f"reward.weights.{n}={w:g}" for n, w in weights.items() if w != 1))


def rewards(given: Any, made: Translation) -> None:
    """Flow-Factory's rewards: names with weights, and options that are left out."""
    entries = _entries(given)
    known = [entry for entry in entries if _reward_of(entry) in options("reward")]
    if entries:
        combined({_reward_of(e): float(e.get("weight", 1.0)) for e in known}, made)
    for entry in entries:
        if entry not in known:
            made.drop("rewards", entry.get("reward_model"), "none here; reward=FILE.py:NAME")
    for option, value in (pair for entry in entries for pair in entry.items()):
        if option not in ("name", "reward_model", "weight"):
            made.drop(f"rewards.{option}", value, "scoring.*, or options of the reward")


def eval_rewards(given: Any, made: Translation) -> None:
    """The names of Flow-Factory's rewards of evaluations."""
    named = [_reward_of(entry) for entry in _entries(given)]
    if names := [name for name in named if name in options("reward")]:
        made.type(f"eval_rewards.of=[{','.join(names)}]")


def _entries(given: Any) -> list[Mapping[str, Any]]:
    return [given] if isinstance(given, Mapping) and given else list(given or [])


def _reward_of(entry: Mapping[str, Any]) -> str:
    return our_option("reward", str(entry.get("reward_model")).lower())


def reward_function(given: Any, made: Translation) -> None:
    """The reward of flow_grpo and ddpo-pytorch: a name, or names with weights."""
    weights = {given: 1.0} if isinstance(given, str) else dict(given or {})
    named = {our_option("reward", name): float(weight) for name, weight in weights.items()}
    if named:
        combined(
            {("geneval_flow_grpo" if n == "geneval" else n): w for n, w in named.items()}, made
        )


def rewards_of_service(weights: Any, made: Translation) -> None:
    """The rewards of UniRL's service, which are scored here."""
    named = {our_option("reward", name): (name, float(w)) for name, w in weights.items()}
    here = {ours: weight for ours, (_, weight) in named.items() if ours in options("reward")}
    combined(here, made)
    url = made.left.get("reward.backend.config.base_url")
    if url and "unifiedreward" in here:
        made.type(f"reward.{'parts.unifiedreward.' if len(here) > 1 else ''}url={url}")
        made.notes.append("reward=unifiedreward asks a server with OpenAI's interface, not UniRL's")
    for ours, (name, weight) in named.items():
        if ours not in here:
            made.drop(f"reward_weights.{name}", weight, "none here; reward=FILE.py:NAME")


def steps_of_scheduler(_: Any, made: Translation) -> None:
    """UniRL's steps that have noise and are learned from; the others have none."""
    total, own = made.given.get("sampling.num_inference_steps", 50), "sampling.scheduler."
    size = made.take(f"{own}config.window_size", 4)
    low, overlap = (made.take(f"{own}config.{key}", 0) for key in ("init_timestep", "overlap_size"))
    part = made.take(f"{own}timestep_fraction", 1.0)
    match made.take(f"{own}config.strategy", None):
        case "progressive":
            step = size - overlap
            places = max(1, (total - low - size) // step + 1)
            at_end = "roll_back" if made.take(f"{own}config.roll_back") else "clip"
            made.type("window=progressive", f"window.at_end={at_end}", f"window.step={step}")
            made.type(f"window.iterations={made.take(f'{own}config.iters_per_window', 25)}")
            high = low + (places - 1) * step + size
        case "random":
            made.type("window=random_contiguous")
            low, high = 0, total
        case _:
            ends = part if isinstance(part, list) else [0, part]
            low, high = (int(total * end) for end in ends)
            size = made.take(f"{own}num_sde_steps") or high - low
            made.type("window=random_subset")
    made.type(f"window.size={size}", f"window.low={low}", f"window.high={high}")


def times_of_schedule(share: Any, made: Translation) -> None:
    """The times of UniRL's NFT: each of the first steps, once."""
    count = int(made.given.get("sampling.num_inference_steps", 50) * share)
    made.type("times=discrete", f"times.count={count}", f"times.fraction={share}")


def window_of_steps(steps: Any, made: Translation) -> None:
    """A window that draws of the range of some steps."""
    count = made.given.get("scheduler.num_sde_steps", made.given.get("train.num_train_steps"))
    if not steps:
        return
    low, high = min(steps), max(steps) + 1
    made.type("window=random_subset", f"window.low={low}", f"window.high={high}")
    made.type(f"window.size={count or 1}")
    if sorted(steps) != list(range(low, high)):
        made.notes.append(f"scheduler.sde_steps {steps}: all steps of their range are drawn")


def window_or_share(_: Any, made: Translation) -> None:
    """flow_grpo's window of steps, or the share of them that is trained."""
    steps, share = made.given["sample.num_steps"], made.take("train.timestep_fraction", 1.0)
    size, place = made.take("sample.sde_window_size"), made.take("sample.sde_window_range")
    if not size:
        made.type("window=all", f"window.skip_last={steps - int(steps * share)}")
        return
    low, high = place or (0, steps)
    if made.value("model") == "qwen_image" and size == 2:
        low, high = 3, 5
        made.notes.append("their script for Qwen-Image trains the steps 3 and 4 in any case")
    made.type("window=random_contiguous", f"window.size={size}")
    made.type(f"window.low={low}", f"window.high={high}")


def times_of_strategy(strategy: Any, made: Translation) -> None:
    """The times that Flow-Factory's algorithms on the forward process learn at."""
    # `time_type` is its name until the shift changed its direction
    is_former = "train.time_type" in made.given
    count, share = made.take("train.num_train_timesteps"), made.take("train.timestep_range")
    strategy = str(strategy).lower()
    if strategy == "none":
        return
    if strategy.startswith("discrete") and share is not None:
        steps = made.given.get("train.num_inference_steps", 10)
        count = min(count or int(steps * share), steps - 1)  # theirs draws steps again
        made.type("times.space=sigma", f"times.fraction={share}")
    made.type(f"times={strategy}", "times.shared=batch", f"times.count={count or 'null'}")
    if strategy == "logit_normal" and not is_former and share is not None:
        made.type(f"times.low={1 - share:g}")
    if strategy.startswith("discrete"):
        return
    of_pairs = 1.0 if made.value("algo") == "diffusion_dpo" else None
    if (shift := made.take("train.time_shift", of_pairs)) is not None:
        toward = "noisy" if is_former else "clean"
        made.type(f"times.shift={float(shift)}", f"times.toward={toward}")


def updates_of_accumulation(steps: Any, made: Translation) -> None:
    """Flow-Factory's updates of so many micro-batches, of which each process has its share."""
    made.take("train.gradient_step_per_epoch")  # is not read then
    given = {key.removeprefix("train."): value for key, value in made.given.items()}
    items = int(given.get("unique_sample_num_per_epoch", 8))
    if made.value("algo") != "diffusion_dpo":  # which has a pair of each group
        items *= int(given.get("group_size", 1))
    of_process = -(-items // made.given["processes"])
    batches = -(-of_process // int(given.get("per_device_batch_size", 1)))
    made.set(updates_per_iteration=max(1, batches // steps))


def decays(_: Any, made: Translation) -> None:
    """The decays of Flow-Factory's CRD: of DiffusionNFT by number, or START-VALUE-SLOPE-END."""
    for theirs, ours in {"old_model_decay": "old", "sampling_model_decay": "ema"}.items():
        given = str(made.take(f"train.{theirs}", ""))
        if given in ("0", "1", "2"):
            made.type(f"{ours}.schedule=nft_{given}")
        elif given.count("-") == 3:
            start, first, slope, last = (float(part) for part in given.split("-"))
            made.type(f"{ours}.decay={last:g}")
            if first and not start:  # as good as theirs: a whole number of steps
                steps = round((last - first) / slope)
                made.type(f"{ours}.schedule=linear", f"{ours}.initial={first:g}")
                made.type(f"{ours}.warmup={steps}")
            else:
                made.type(f"{ours}.schedule=piecewise_linear", f"{ours}.ramp={slope:g}")
                made.type(f"{ours}.flat={start:g}")
        elif given:
            made.drop(f"train.{theirs}", given, f"{ours}.schedule")


def first_optimizer(groups: Any, made: Translation) -> None:
    """The options of the first group of parameters."""
    made.left |= {f"optimizers.{key}": value for key, value in groups[0].items()}


def averages(_: Any, made: Translation) -> None:
    """Flow-Factory's averaged weights, which are evaluated, and of NFT and AWM the old policy."""
    given = {ours: made.take(f"train.{name}") for name, ours in AVERAGES.items()}
    given["schedule"] = given["schedule"] or "power"  # theirs, where none is named
    if not given["decay"]:
        made.type("evaluation.weights=policy")
        return
    given = {"clock": "iteration", "update": "iteration", **given}
    for name in ("ema", "old") if made.value("algo") in ("nft", "awm") else ("ema",):
        made.set(**{f"{name}.{key}": v for key, v in given.items() if v is not None})
    made.type("evaluation.weights=ema")


def sizes_by_gpu(_: Any, made: Translation) -> None:
    """Prompts of an iteration and updates, from flow_grpo's batches that are counted by GPU."""
    former = made.take("sample.batch_size", 1)
    per_gpu = made.take("sample.train_batch_size") or former
    batches, gpus = made.take("sample.num_batches_per_epoch", 1), made.given["processes"]
    made.take("sample.mini_num_image_per_prompt")
    group, samples = made.take("sample.num_image_per_prompt"), gpus * per_gpu * batches
    train = made.take("train.batch_size", per_gpu)
    step = train * max(1, made.take("train.gradient_accumulation_steps", 1))  # 1 // 2 with one GPU
    updates = max(1, per_gpu * batches // step)
    set_sizes(made, group, samples, updates)
    if samples % group:
        made.notes.append(f"{samples} samples an iteration are no whole groups of {group}")
    made.notes.append(
        f"{gpus} x {per_gpu} x {batches} samples an iteration; train.batch_size {train} is"
        " micro_batch, which only affects memory"
    )


def set_sizes(made: Translation, group: int, samples: int, updates: int) -> None:
    """The sizes of an iteration of `samples` in groups."""
    prompts = max(1, samples // group)
    made.set(group_size=group, prompts_per_iteration=prompts, updates_per_iteration=updates)
