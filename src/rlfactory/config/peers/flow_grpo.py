"""Configurations of flow_grpo and ddpo-pytorch, `config/FILE.py:NAME`, as a command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory.config.named_models import KINDS
from rlfactory.config.peers.data import combined
from rlfactory.config.peers.names_file import our_option
from rlfactory.config.peers.python_config import PythonConfig, functions, read
from rlfactory.config.peers.translation import Fields, Translation, translate_rest
from rlfactory.config.problems import PlanError, Problem, closest

FLOW_GRPO, DDPO, NFT = "flow_grpo", "ddpo-pytorch", "DiffusionNFT"
NOTHING = {
    "debug": "a switch of their script",
    "revision": "the newest one",
    "test_batch_size": "sample_batch, as in training",
    "eval_guidance_scale": "evaluations have the guidance of training",
    "prompt_fn_kwargs": "options of prompts",
    "save_dir": "run_dir=FOLDER, one for each run",
    "logdir": "run_dir=FOLDER, one for each run",
    "fsdp_optimizer_offload": "hardware=fsdp2 hardware.offload=true",
    "clip_range_lt": "read by their GRPO-Guard alone",
    "clip_range_gt": "read by their GRPO-Guard alone",
    "timestep_shift": "read for BAGEL alone",
    "sft": "supervised losses are not mixed in",
    "sft_batch_size": "supervised losses are not mixed in",
    "diffusion_loss": "read for videos alone",
    "train_num_steps": "window.size",
    "sample_time_per_prompt": "group_size",
}


def translate(file: Path, name: str, processes: int) -> Translation:
    """Translate the configuration that a function of a file returns.

    Args:
        file: a Python file; it is read, and not imported.
        name: the function.
        processes: GPUs, where the file does not say it.

    Raises:
        PlanError: the file can't be read or has no such function.
    """
    try:
        found = read(file, name)
    except KeyError as error:
        known = sorted(functions(file))
        guess = closest(name, known) or next(iter(known), "")
        message = f"has no function {name}; functions are {', '.join(known)}"
        raise PlanError(
            [Problem(str(file), message, f"rlfactory import {file}:{guess}")]
        ) from error
    except (OSError, SyntaxError, ValueError) as error:
        raise PlanError([Problem(str(file), f"can't be read: {error}")]) from error
    if not {"sample", "train"} <= found.values.keys():
        first = f"; not understood: {found.unread[0]}" if found.unread else ""
        others = [n for n, node in functions(file).items() if n != name and not node.args.args]
        message = f"{name} returns no configuration of flow_grpo, DiffusionNFT or ddpo-pytorch"
        message += f"{first}; functions are {', '.join(others)}" if others else first
        fix = f"rlfactory import {file}:{others[0]}" if others else ""
        raise PlanError([Problem(str(file), message, fix)])
    gpus = int(found.variables.get("gpu_number", found.variables.get("n_gpus", processes)))
    if "decay_type" in found.values:
        return _diffusion_nft(found)
    made = from_values(found.values, gpus)
    made.notes += [f"not understood: {line}" for line in found.unread]
    if "gpu_number" not in found.variables:
        made.notes.append(f"for {gpus} GPU{'s' * (gpus > 1)}; more by --gpus N")
    return made


def _diffusion_nft(found: PythonConfig) -> Translation:
    """DiffusionNFT's configuration, whose batch size is searched in a loop that is not run."""
    fields, into = Fields(found.values), Translation(NFT)
    into.type("experiment=peer/nft")
    for name in [name for name in fields.left if name.startswith("pretrained.")]:
        path = str(fields.take(name))
        into.notes.append(f"{path}: model.path is that of peer/nft")
    _rewards(fields.take("reward_fn"), fields, into)
    _prompts(fields, into)
    into.set("group_size", fields.take("sample.num_image_per_prompt", 24))
    into.set("prompts_per_iteration", found.variables.get("num_groups", 48))
    into.set("updates_per_iteration", found.variables.get("gradient_step_per_epoch", 1))
    into.set("algo.beta", float(fields.take("beta", 1.0)))
    into.set("regularizer.coefficient.value", fields.take("train.beta", 1e-4))
    fields.take("sample.deterministic")
    translate_rest(fields, into, (NFT,), {**NOTHING, "noise_level": "its solver draws no noise"})
    return into


def from_values(content: Mapping[str, Any], gpus: int, peer: str = "") -> Translation:
    """Translate the values of a configuration of either library, or of `peer` in their names."""
    is_ddpo = "eta" in content["sample"]
    into = Translation(peer or (DDPO if is_ddpo else FLOW_GRPO))
    fields = Fields(content)
    if is_ddpo:
        into.type("algo=ddpo", "dynamics=ddim", "schedule=leading", "window=all")
        into.type("window.skip_last=0")
    else:
        into.type("algo=grpo", "schedule=diffusers")
    path = str(fields.take("pretrained.model"))
    option = next((o for part, o in KINDS.items() if part in path.lower()), None)
    if option is None:
        raise PlanError(
            [Problem("pretrained.model", f"{path} is of a kind that is not trained here")]
        )
    if option.startswith("flux"):
        into.type("schedule=uniform")
    if option == "wan":
        into.type("schedule=unipc")
    into.type("learning_rate.final_scale=1.0", *LORA.get(option, ()))
    into.type(f"model={option}", "recipe=none", f"model.path={MOVED.get(path, path)}")
    _common(fields, into, option, gpus)
    if is_ddpo:
        _ddpo(fields, into)
    else:
        _flow_grpo(fields, into)
        if option == "wan":
            _video(fields, into)
    if "num_epochs" not in fields:
        into.notes.append("the file says no num_epochs: iterations are those of the algorithm")
    translate_rest(fields, into, (FLOW_GRPO, DDPO, into.peer), NOTHING)
    return into


def _video(fields: Fields, into: Translation) -> None:
    """Their sampler for Wan has the noise level after the first step as its own."""
    into.type("dynamics=linear_sde", "model.text_tokens=512", "latent_storage=float32")
    into.words.pop("dynamics.noise_level", None)
    edges = [fields.take(edge) for edge in ("height", "width")]
    if None not in edges:
        into.set("model.size", edges)
    if (frames := fields.take("frames")) is not None:
        into.set("model.frames", frames)
        into.type(f"scoring.frames={-(-frames // 4)}")  # each fourth one
    fields.take("resolution")


FLUX_TARGETS = (
    *("attn.to_k", "attn.to_q", "attn.to_v", "attn.to_out.0", "attn.add_k_proj", "attn.add_q_proj"),
    *("attn.add_v_proj", "attn.to_add_out", "ff.net.0.proj", "ff.net.2"),
    *("ff_context.net.0.proj", "ff_context.net.2"),
)
_FLUX_LORA = (
    *("model.lora_rank=64", "model.lora_alpha=128.0"),
    f"model.lora_targets=[{','.join(FLUX_TARGETS)}]",
)
LORA = {"flux": _FLUX_LORA, "flux_kontext": _FLUX_LORA}
"""Adapters that their scripts have whatever the configuration says, where ours differ."""
MOVED = {"runwayml/stable-diffusion-v1-5": "stable-diffusion-v1-5/stable-diffusion-v1-5"}
"""Models that have another hub id by now."""


def _common(fields: Fields, into: Translation, option: str, gpus: int) -> None:
    precision = str(fields.take("mixed_precision", "no"))
    into.type(f"precision={our_option('precision', precision)}")
    into.type(f"model.finetune={'lora' if fields.take('use_lora', True) else 'full'}")
    scale, in_training = fields.take("sample.guidance_scale"), fields.take("train.cfg", True)
    if scale is not None:
        is_flux = option.startswith("flux")
        key = "model.embedded_guidance" if is_flux else "model.guidance"
        into.set(key, float(scale))
        if not in_training and float(scale) > 1 and not is_flux:
            into.notes.append("train.cfg=False: guidance here is in sampling and in learning")
    _sizes(fields, into, gpus)
    betas = [fields.take("train.adam_beta1", 0.9), fields.take("train.adam_beta2", 0.999)]
    into.set("optimizer.betas", betas)
    if fields.take("train.use_8bit_adam"):
        into.type("optimizer=adamw_8bit")
    _rewards(fields.take("reward_fn"), fields, into)
    _prompts(fields, into)


def _rewards(given: Any, fields: Fields, into: Translation) -> None:
    nested = {k: fields.take(k) for k in [*fields.left] if k.startswith("reward_fn.")}
    if nested:
        given = {key.partition(".")[2]: weight for key, weight in nested.items()}
    weights = {given: 1.0} if isinstance(given, str) else dict(given or {})
    named = {our_option("reward", n): float(w) for n, w in weights.items()}
    if "geneval" in named:
        named = {("geneval_flow_grpo" if n == "geneval" else n): w for n, w in named.items()}
    into.type(*combined(named))


def _prompts(fields: Fields, into: Translation) -> None:
    name = str(fields.take("prompt_fn", ""))
    place = str(fields.take("dataset", "")).rstrip("/").rpartition("/")[2]
    known = our_option("prompts", place or name)
    into.type(f"prompts={known}")


def _sizes(fields: Fields, into: Translation, gpus: int) -> None:
    """Prompts of an iteration and updates, from batches that are counted by GPU."""
    per_gpu = fields.take("sample.train_batch_size") or fields.take("sample.batch_size", 1)
    fields.take("sample.batch_size")
    batches = fields.take("sample.num_batches_per_epoch", 1)
    group = fields.take("sample.mini_num_image_per_prompt")
    group = fields.take("sample.num_image_per_prompt", 1)
    samples = gpus * per_gpu * batches
    into.set("group_size", group)
    into.set("prompts_per_iteration", max(1, samples // group))
    if samples % group:
        into.notes.append(f"{samples} samples an iteration are no whole groups of {group}")
    train, steps = (
        fields.take("train.batch_size", per_gpu),
        fields.take("train.gradient_accumulation_steps", 1),
    )
    into.set("updates_per_iteration", max(1, per_gpu * batches // (train * steps)))
    into.notes.append(
        f"{gpus} x {per_gpu} x {batches} samples an iteration; train.batch_size {train} is"
        " micro_batch, which only affects memory"
    )


def _ddpo(fields: Fields, into: Translation) -> None:
    into.set("dynamics.eta", float(fields.take("sample.eta", 1.0)))
    sizes = {name: fields.take(f"per_prompt_stat_tracking.{name}") for name in TRACKER}
    tracked = fields.take("per_prompt_stat_tracking")
    if any(sizes.values()) or tracked:
        into.type("advantage=tracker")
        for name, value in sizes.items():
            if value is not None:
                into.set(f"advantage.{name}", value)
    else:
        into.type("advantage=batch")
    if "precision=fp16" in into.words.values():
        into.type("latent_storage=float16")
    into.type("evaluation.weights=policy")  # it keeps no average


TRACKER = ("buffer_size", "min_count")


def _flow_grpo(fields: Fields, into: Translation) -> None:
    into.type("model.text_tokens=128")  # their max_sequence_length
    if "precision=fp16" in into.words.values() and fields.left.get("sample.sde_type") != "cps":
        into.type("latent_storage=float16")  # their pipeline casts between the steps
    into.type(f"dynamics={'cps' if fields.take('sample.sde_type') == 'cps' else 'flow_sde'}")
    into.set("dynamics.noise_level", fields.take("sample.noise_level", 0.7))
    steps = fields.left.get("sample.num_steps", 10)
    size, place = fields.take("sample.sde_window_size"), fields.take("sample.sde_window_range")
    share = fields.take("train.timestep_fraction", 1.0)
    if size:
        low, high = place or (0, steps)
        if into.words["model"] == "model=qwen_image" and size == 2:
            low, high = 3, 5
            into.notes.append("their script for Qwen-Image trains the steps 3 and 4 in any case")
        into.type("window=random_contiguous")
        for name, value in {"size": size, "low": low, "high": high}.items():
            into.set(f"window.{name}", value)
    else:
        into.type("window=all")
        into.set("window.skip_last", steps - int(steps * share))
    fields.take("per_prompt_stat_tracking")
    into.type(f"advantage={'global' if fields.take('sample.global_std', True) else 'group'}")
    into.type("advantage.zero_variance=renormalise")
    if fields.take("sample.same_latent"):
        into.set("branches", int(into.words["group_size"].partition("=")[2]))
    beta = fields.take("train.beta", 0) or 0
    into.type(f"regularizer={'kl_flow_grpo' if beta else 'none'}")
    if beta:
        into.set("regularizer.coefficient.value", beta)
    if (penalty := fields.take("sample.kl_reward")) not in (None, 0):
        into.drop("sample.kl_reward", penalty, "a penalty on steps stands in the loss")
    if fields.take("train.ema"):
        into.type("evaluation.weights=ema", "ema.decay=0.9", "ema.interval=8")
    else:
        into.type("evaluation.weights=policy")
    if (begun := fields.take("train.lora_path")) is not None:
        into.drop("train.lora_path", begun, "begin_from=RUN takes a run of rlfactory")
