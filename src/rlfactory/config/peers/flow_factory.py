"""Flow-Factory's YAML files as a command."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.config.peers import values
from rlfactory.config.peers.data import combined, prompts_of
from rlfactory.config.peers.names_file import our_option
from rlfactory.config.peers.translation import Fields, Translation, choice, translate_rest

NAME = "Flow-Factory"
ALGORITHMS = {"grpo": "grpo", "grpo-guard": "grpo_guard", "nft": "nft", "awm": "awm"}
MODELS = {
    **{"sd3-5": "sd35", "sd3": "sd35", "flux1": "flux", "flux1-kontext": "flux_kontext"},
    **{"flux2": "flux2_dev", "flux2-klein": "flux2_klein", "qwen-image": "qwen_image"},
    **{"z-image": "z_image", "wan2_t2v": "wan"},
}
EMBEDDED_GUIDANCE = ("flux", "flux_kontext", "flux2_dev")
"""Models whose guidance is an input of the network."""
DYNAMICS = {"flow-sde": "flow_sde", "dance-sde": "dance_sde", "cps": "cps", "ode": "ode"}
NOTHING = {
    "launcher": "the command starts its own processes",
    "config_file": "hardware=ddp or fsdp2 stands for it",
    "preprocessing_batch_size": "prompts are encoded as they are used",
    "force_reprocess": "prompt_cache=null for no cache",
    "cache_dir": "prompt_cache=FOLDER",
    "max_dataset_size": "all prompts of the file are used",
    "ref_param_device": "memory.offload_weights=true: on the CPU",
    "ema_device": "memory.offload_weights=true: on the CPU",
    "save_model_only": "checkpoints are complete, so that a run can be resumed",
    "latent_storage_device": "on the model's device",
    "resume_type": "a checkpoint knows its type",
    "off_policy": "algo.behaviour, or the algorithm's own",
    "time_shift": "times=discrete has none",
    "kl_weight": "uniform",
}


def translate(content: Mapping[str, Any], folder: Path) -> Translation:
    """Translate a configuration.

    Args:
        content: the YAML file.
        folder: where paths in it begin.

    Raises:
        PlanError: its trainer or its model is none of ours.
    """
    into, fields = Translation(NAME), Fields(content)
    algo = choice(fields, "train.trainer_type", ALGORITHMS)
    model = choice(fields, "model.model_type", MODELS)
    into.type(f"algo={algo}", f"model={model}", "recipe=none", "schedule=uniform")
    into.type("regularizer=none", "learning_rate.final_scale=1.0")
    _model(fields, into, model)
    _hardware(fields, into)
    _data(fields, into, folder)
    _rewards(fields, into)
    _sampling(fields, into, algo)
    _learning(fields, into, algo)
    _penalties(fields, into, algo)
    _averages(fields, into, algo)
    _evaluation(fields, into)
    translate_rest(fields, into, (NAME,), NOTHING)
    if "iterations" not in into.words:
        into.set("iterations", 1000)
        into.notes.append("their trainer runs until it is stopped; iterations=1000 is our choice")
    return into


def _model(fields: Fields, into: Translation, model: str) -> None:
    if (path := fields.take("model.model_name_or_path")) is not None:
        into.set("model.path", path)
    into.set("model.finetune", fields.take("model.finetune_type", "lora"))
    targets = fields.take("model.target_modules", "default")
    if targets == "all":
        into.drop("model.target_modules", targets, "the attention projections; else name them")
    elif targets != "default":
        into.set("model.lora_targets", targets if isinstance(targets, list) else [targets])
    for key in ("lora_rank", "lora_alpha"):
        if (value := fields.take(f"model.{key}")) is not None:
            into.set(f"model.{key}", value)
    if (begun := fields.take("model.resume_path")) is not None:
        into.drop("model.resume_path", begun, "begin_from=RUN takes a run of rlfactory")
    resolution = fields.take("train.resolution")
    if resolution is not None:
        into.set("model.size", _size(resolution))
    if model == "wan" and (frames := fields.take("train.num_frames")) is not None:
        into.set("model.frames", frames)
    _guidance(fields.take("train.guidance_scale"), into, model)


def _size(resolution: Any) -> Any:
    """One number for a square, else height and width."""
    is_square = isinstance(resolution, list) and len({*resolution}) == 1
    return resolution[0] if is_square else resolution


def _guidance(scale: float | None, into: Translation, model: str) -> None:
    if scale is None:
        return
    target = ".ZImage" if model == "z_image" else ""
    given = {"embedded_guidance": True} if model in EMBEDDED_GUIDANCE else {}
    into.type(*values.guidance(f"{scale:g}", {"model": {"_target_": target, **given}})[0])


def _hardware(fields: Fields, into: Translation) -> None:
    processes = fields.take("num_processes", 1)
    if processes > 1:
        into.type("hardware=ddp")
        into.set("hardware.processes", processes)
        launched = str(fields.left.get("config_file"))
        if "fsdp" in launched or "zero3" in launched:
            into.type("hardware=fsdp2")
        elif "deepspeed" in launched:
            into.notes.append("DeepSpeed's sharding: hardware=fsdp2 if the network needs it")
        if (port := fields.take("main_process_port")) is not None:
            into.set("hardware.port", port)
    else:
        fields.take("main_process_port")
    precision = str(fields.take("mixed_precision", "no"))
    into.type(f"precision={our_option('precision', precision)}")


def _data(fields: Fields, into: Translation, folder: Path) -> None:
    place = fields.take("data.dataset_dir")
    if place is None and (sources := fields.take("data.datasets")):
        place = sources[0].get("dataset_dir")
        if len(sources) > 1:
            into.drop("data.datasets", [s.get("dataset_dir") for s in sources[1:]], "one data set")
    if place is None:
        into.notes.append("the file names no prompts: those of the reward are used")
    else:
        into.type(*prompts_of(str(place), folder))


def _rewards(fields: Fields, into: Translation) -> None:
    _reward_words(_entries(fields.take("rewards")), into, "rewards")
    names = [_reward(e) for e in _entries(fields.take("eval_rewards") or _nested(fields))]
    if names:
        into.set("eval_rewards.of", f"[{','.join(names)}]")


def _nested(fields: Fields) -> dict[str, Any]:
    """A single evaluation reward, which was flattened."""
    keys = [key for key in fields.left if key.startswith("eval_rewards.")]
    return {key.partition(".")[2]: fields.take(key) for key in keys}


def _entries(given: Any) -> list[Mapping[str, Any]]:
    return [given] if isinstance(given, Mapping) and given else list(given or [])


def _reward(entry: Mapping[str, Any]) -> str:
    name = str(entry.get("reward_model")).lower()
    return our_option("reward", name)


def _reward_words(entries: Sequence[Mapping[str, Any]], into: Translation, key: str) -> None:
    weights = {_reward(entry): float(entry.get("weight", 1.0)) for entry in entries}
    into.type(*combined(weights))
    for entry in entries:
        for option, value in entry.items():
            if option not in ("name", "reward_model", "weight"):
                into.drop(f"{key}.{option}", value, "scoring.*, or options of the reward")


def _sampling(fields: Fields, into: Translation, algo: str) -> None:
    dynamics = DYNAMICS[str(fields.take("scheduler.dynamics_type", "Flow-SDE")).lower()]
    into.type(f"dynamics={dynamics}")
    noise = fields.take("scheduler.noise_level")
    if noise is not None and dynamics in ("flow_sde", "cps"):
        into.set("dynamics.noise_level", noise)
    elif noise is not None and dynamics == "dance_sde":
        into.set("dynamics.eta", noise)
    steps = fields.take("scheduler.sde_steps", fields.take("train.train_steps"))
    count = fields.take("scheduler.num_sde_steps", fields.take("train.num_train_steps"))
    if algo in ("grpo", "grpo_guard") and steps:
        into.type("window=random_subset")
        into.set("window.size", count or 1)
        into.set("window.low", min(steps))
        into.set("window.high", max(steps) + 1)
        if sorted(steps) != list(range(min(steps), max(steps) + 1)):
            into.notes.append(f"scheduler.sde_steps {steps}: all steps of their range are drawn")
    if fields.take("scheduler.seed") is not None:
        into.notes.append("scheduler.seed: all random numbers follow from seed")


def _learning(fields: Fields, into: Translation, algo: str) -> None:
    std = "global" if fields.take("train.global_std", True) else "group"
    if fields.take("train.advantage_aggregation", "sum") == "gdpo":
        into.type("advantage=gdpo")
    else:
        into.type(f"advantage={std}")
    into.type("advantage.eps=1e-6", "advantage.eps_as=floor")
    clip = fields.take("train.adv_clip_range")
    if isinstance(clip, list):
        clip = max(map(abs, clip))
    if clip is not None:
        into.set("algo.advantage_clip" if algo == "nft" else "advantage.clip", float(clip))
    if algo == "nft":
        into.set("advantage.clip", None)  # the loss clips by itself
    ratio = fields.take("train.clip_range")
    if isinstance(ratio, list):
        ratio = max(map(abs, ratio))
    if ratio is not None and algo != "nft":
        into.set("algo.clip_range", float(ratio))
    renamed = {"awm_weighting": "algo.weighting", "ghuber_power": "algo.power"}
    for name, key in renamed.items():
        if (value := fields.take(f"train.{name}")) is not None and algo == "awm":
            into.set(key, str(value).lower() if isinstance(value, str) else value)
    if algo in ("nft", "awm"):
        _times(fields, into)
    groups = fields.take("optimizers") or []
    for name, key in OPTIMIZER.items():
        if groups and name in groups[0]:
            into.set(key, groups[0][name])
    accumulation = fields.take("train.gradient_accumulation_steps", "auto")
    if accumulation != "auto":
        into.notes.append(
            f"train.gradient_accumulation_steps {accumulation}: updates_per_iteration says how many"
            " updates an iteration's samples are divided into"
        )


def _times(fields: Fields, into: Translation) -> None:
    former = fields.take("train.time_type")  # its name until the shift changed its direction
    strategy = str(fields.take("train.time_sampling_strategy", former)).lower()
    count, share = fields.take("train.num_train_timesteps"), fields.take("train.timestep_range")
    if strategy == "none":
        return
    into.type(f"times={strategy}", "times.shared=batch")
    into.set("times.count", count or "null")
    if strategy.startswith("discrete"):
        if share is not None:
            into.type("times.space=sigma")
            into.set("times.fraction", share)
    elif (shift := fields.take("train.time_shift")) is not None:
        into.set("times.shift", float(shift))
        into.set("times.toward", "clean" if former is None else "noisy")


OPTIMIZER = {
    "learning_rate": "optimizer.lr",
    "weight_decay": "optimizer.weight_decay",
    "betas": "optimizer.betas",
    "eps": "optimizer.eps",
    "max_grad_norm": "max_grad_norm",
}
"""Keys of an entry of `optimizers`."""


def _penalties(fields: Fields, into: Translation, algo: str) -> None:
    kind, beta = fields.take("train.kl_type", "v-based"), fields.take("train.kl_beta", 0) or 0
    slow = fields.take("train.ema_kl_beta", 0) or 0
    if algo == "awm" and slow:
        into.type("regularizer=kl_awm")
        into.set("regularizer.terms.reference.coefficient.value", beta)
        into.set("regularizer.terms.old.coefficient.value", slow)
    elif beta:
        into.type(f"regularizer={'kl_v' if kind == 'v-based' else 'kl_x'}")
        into.set("regularizer.coefficient.value", beta)


AVERAGE = {
    "ema_decay": "decay",
    "ema_decay_schedule": "schedule",
    "ema_update_interval": "interval",
    "warmup_steps": "warmup",
    "flat_steps": "flat",
    "ramp_rate": "ramp",
}
"""Keys of the averaged weights, and ours below `ema` and `old`."""


def _averages(fields: Fields, into: Translation, algo: str) -> None:
    given = {ours: fields.take(f"train.{name}") for name, ours in AVERAGE.items()}
    given["schedule"] = given["schedule"] or "power"  # theirs, where none is named
    sets = ("ema", "old") if algo in ("nft", "awm") else ("ema",)
    if not given["decay"]:
        into.type("evaluation.weights=policy")
        return
    for name in sets:
        into.type(f"{name}.clock=iteration", f"{name}.update=iteration")
        for key, value in given.items():
            if value is not None:
                into.set(f"{name}.{key}", value)
    into.type("evaluation.weights=ema")


def _evaluation(fields: Fields, into: Translation) -> None:
    trained = into.words.get("model.guidance") or into.words.get("model.embedded_guidance")
    scale = fields.take("eval.guidance_scale")
    if scale is not None and trained and float(scale) != float(trained.partition("=")[2]):
        into.drop("eval.guidance_scale", scale, "evaluations have the guidance of training")
    for name, key in {"resolution": "size", "num_inference_steps": "steps"}.items():
        if (value := fields.take(f"eval.{name}")) is not None:
            into.set(f"evaluation.{key}", _size(value))
    if fields.take("eval.seed") is not None:
        into.notes.append("eval.seed: all random numbers follow from seed")
    if (size := fields.take("eval.per_device_batch_size")) is not None:
        into.drop("eval.per_device_batch_size", size, "sample_batch, as in training")
    project, backend = fields.take("log.project"), str(fields.take("log.logging_backend", "none"))
    if backend in ("wandb", "tensorboard"):
        into.type(f"logger={backend}")
    elif backend != "none":
        into.drop("log.logging_backend", backend, "rlfactory list logger")
    if project is not None and backend == "wandb":
        into.set("logger.project", str(project))
    name, place = (
        fields.take("log.run_name"),
        str(fields.take("log.save_dir", "outputs")).rstrip("/"),
    )
    if name is not None:
        into.set("run_dir", f"{place}/{name}")
    into.notes.append(
        "per_device_batch_size: micro_batch only affects memory, never what is learned"
    )
