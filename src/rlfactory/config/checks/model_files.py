"""Rules on files of models: model folders and their configurations, and the run to begin from."""

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlfactory.config.checks.base import Config, Traits, only, rewards_of
from rlfactory.config.memory.model_parts import published_part, published_pipeline
from rlfactory.config.named_models import (
    SECOND,
    begun_as,
    begun_keys,
    is_hub_id,
    matrices,
    model_of,
    of_class,
    offline_fault,
    tied_modules,
)
from rlfactory.config.options import options
from rlfactory.config.problems import Problem
from rlfactory.config.schema.signature import trait
from rlfactory.model.lm.trainable import GGUF, language_fault
from rlfactory.model.pipelines.adapter_files import (
    AdapterFileError,
    conversion,
    find_adapters,
    in_files,
    read_adapters,
    shared_weight,
)
from rlfactory.model.pipelines.families import BY_PIPELINE, BY_TARGET, NO_FAMILY, family_of
from rlfactory.model.pipelines.local_models import (
    LANGUAGE_OPTION,
    MODEL_INDEX,
    OPTIONS,
    PIPELINE_INDEXES,
    folder_of,
    index_of,
    latent_group,
    nearest_sizes,
    pipeline_fault,
    pipeline_of,
    read_json,
    resolve,
    sizes_of,
    takes_guidance,
    without_index,
)
from rlfactory.model.pipelines.scheduler_config import (
    flow_scheduler_fault,
    noise_scheduler_fault,
    scheduler_of,
)
from rlfactory.model.pipelines.shipped import PACKAGED, packaged_folder
from rlfactory.utils.dotted_keys import value_at
from rlfactory.utils.live_objects import is_reference
from rlfactory.utils.text import typed_path


def require_model_folders(config: Config, traits: Traits) -> Iterator[Problem]:
    """`model.path` and `model.value_path` lead to models of the chosen kind."""
    own, path = traits["model"], config["model"].get("path")
    critic, writes = config["model"].get("value_path"), own.get("media") == "texts"
    if isinstance(critic, str) and not is_reference(critic) and (wrong := _fault(critic, writes)):
        yield Problem("model.value_path", f"{critic} {wrong}", "model.value_path=null")
    if not isinstance(path, str) or is_reference(path):
        return
    pipeline, local = own.get("pipeline"), Path(path).expanduser()
    if fault := _family_fault(path, traits):
        yield Problem("model.path", *fault)
    elif writes and (os.path.exists(local) or local.suffix == GGUF):
        other = of_class(path, local) if (local / MODEL_INDEX).is_file() else None
        if found := language_fault(local):
            yield Problem("model.path", f"{path} {found[0]}", instead=found[1])
        elif other and not trait(config["model"], "model_types"):
            message = f"{path} is of another kind, which model={other} is for"
            yield Problem("model.path", message, f"model={other}")
    elif pipeline is not None and os.path.isdir(local) and (why := pipeline_fault(local)):
        yield Problem("model.path", f"{path} {why}")
    elif pipeline is not None and os.path.isfile(local):
        folder = Path(path).stem
        message = (
            f"{path} is a single file, and a folder is needed; diffusers makes one:"
            f" {pipeline}.from_single_file({path!r}).save_pretrained({folder!r}), where there is no"
            " network with config=FOLDER of any pipeline of the family. Then type"
            f" model.path={folder}"
        )
        yield Problem("model.path", message)
    elif wrong := _fault(path, writes):
        general = [folder for folder in _shipped(writes) if folder.name in options("model")]
        fitting = [f.name for f in general if pipeline is None or pipeline_of(f) == pipeline]
        # a model of the hub that is not downloaded is asked for on purpose
        fix = f"model.path=zoo:{fitting[-1]}" if fitting and not is_hub_id(path) else ""
        yield Problem("model.path", f"{path} {wrong}", fix)


def require_reward_models(config: Config, traits: Traits) -> Iterator[Problem]:
    """A folder from which a reward loads a model is there, and holds one."""
    for key, node, own in rewards_of(config, traits):
        for option in own.get("model_options", ()):
            try:
                resolve(str(node.get(option)), MODEL_INDEX)
            except ValueError as error:
                yield Problem(f"{key}.{option}", str(error))


def _shipped(writes: bool) -> list[Path]:
    """The folders of the models that ship, of texts or of pictures."""
    shipped = Path(__file__).parents[2] / "model" / "zoo" / "weights"
    index = MODEL_INDEX if writes else PIPELINE_INDEXES[0]
    return sorted(path.parent for path in shipped.glob(f"*/{index}"))


def _family_fault(path: str, traits: Traits) -> tuple[str, str] | None:
    """The fault of a model of another family, and the command that trains it."""
    wanted, folder = traits["model"].get("pipeline"), folder_of(path)
    of_texts = traits["model"].get("media") == "texts"
    kind = published_pipeline(path) if folder is None else pipeline_of(folder)
    option = OPTIONS.get(kind or "")
    if kind is None and folder is not None and (folder / MODEL_INDEX).is_file():
        writes = not of_texts and not language_fault(folder)
        kind, option = ("language model", LANGUAGE_OPTION) if writes else (None, None)
    if kind is None or kind == wanted or (wanted is None and not of_texts):
        return None
    reason = f": {NO_FAMILY[kind]}" if kind in NO_FAMILY else f"; known are {', '.join(OPTIONS)}"
    reason = f"; model={option} trains it" if option else reason
    message = f"{path} is a {kind}, not a {wanted or 'language model'}{reason}"
    return message, f"rlfactory model={option} model.path={path}" if option else ""


def _fault(path: str, writes: bool) -> str | None:
    """The fault of the place of a model of texts or of pictures."""
    folder, indexes = Path(path).expanduser(), (MODEL_INDEX,) if writes else PIPELINE_INDEXES
    if path.startswith("zoo:"):
        name = path.removeprefix("zoo:")
        if writes and name in PACKAGED:
            try:
                packaged_folder(name)
            except ValueError as error:
                return str(error)
        known = [*(PACKAGED if writes else ()), *(folder.name for folder in _shipped(writes))]
        return None if name in known else f"does not ship; these do: {', '.join(known)}"
    if os.path.isdir(folder):
        is_model = any(os.path.isfile(folder / index) for index in indexes)
        return None if is_model else without_index(folder, indexes[0])
    if not is_hub_id(path):
        return "does not exist; allowed are a folder, zoo:NAME or a hub id OWNER/NAME"
    return offline_fault(path)


def require_followed_scheduler(config: Config, traits: Traits) -> Iterator[Problem]:
    """A schedule follows the scheduler of the pipeline."""
    folder = folder_of(config["model"].get("path"))
    if folder is None or traits["model"].get("process") == "tokens":
        return
    path, scheduler = config["model"]["path"], scheduler_of(folder)
    name = scheduler.get("_class_name")
    if not isinstance(name, str) or _family_fault(path, traits):
        return
    is_flow = traits["model"].get("process") == "flow"
    if fault := (flow_scheduler_fault if is_flow else noise_scheduler_fault)(name, scheduler):
        yield Problem("model.path", f"{path} {fault}")


def require_divisible_sizes(config: Config, traits: Traits) -> Iterator[Problem]:
    """Image sizes are multiples of what the autoencoder and the network downscale by."""
    pipeline = traits["model"].get("pipeline")
    vae, network = (_part(config, traits, name) for name in ("vae", "transformer"))
    found = sizes_of(vae, network, pipeline) if pipeline else None
    if found is None:
        return
    unit, largest = found
    for key in ("model.size", "evaluation.size"):
        size = value_at(config, key)
        edges = size if isinstance(size, list) else [size]
        if not all(isinstance(edge, int) for edge in edges):
            continue
        if len(edges) not in (1, 2):
            message = f"has {len(edges)} edges; allowed are one number or [HEIGHT, WIDTH]"
            yield Problem(key, message, f"{key}=512")
        elif any(edge % unit or edge > (largest or edge) for edge in edges):
            near = [nearest_sizes(edge, unit, largest) for edge in edges]
            most = f" up to {largest}" if largest else ""
            fitting = shown = f"[{','.join(str(sizes[0]) for sizes in near)}]"
            if isinstance(size, int):
                fitting, shown = str(near[0][0]), " and ".join(map(str, sorted(near[0])))
            message = f"is {size}; this model takes multiples of {unit}{most}, nearest {shown}"
            yield Problem(key, message, f"{key}={fitting}")


def require_possible_frames(config: Config, traits: Traits) -> Iterator[Problem]:
    """A video has one frame and whole groups of further ones, as its autoencoder makes them."""
    frames, group = config["model"].get("frames"), latent_group(_part(config, traits, "vae"))
    if isinstance(frames, int) and (left := (frames - 1) % group):
        near = frames - left
        message = (
            f"is {frames}; this model makes 1, {group + 1}, {2 * group + 1}, ... frames, nearest"
            f" {near} and {near + group}"
        )
        yield Problem("model.frames", message, f"model.frames={near}")


def require_own_transformers(config: Config, traits: Traits) -> Iterator[Problem]:
    """A pipeline has the second transformer, for low noise, exactly if its adapter needs one."""
    model, own = config["model"], traits["model"]
    path, family = model.get("path"), BY_TARGET.get(str(model.get("_target_")))
    if (folder := folder_of(path)) is None or own.get("process") != "flow":
        return
    index, message, option = index_of(folder), "", None
    has = (index.get(SECOND) or [None])[0] is not None
    if has and not own.get("second_part"):
        message = f"{path} has a transformer for high and one for low noise"
        option = family_of(family.pipeline, [SECOND]).option if family else None
    elif not has and index.get("boundary_ratio") is not None:
        message = f"{path} has a boundary_ratio and no {SECOND}: it holds one of two networks"
    elif not has and family and family.part:
        message = f"{path} has one network, and no {SECOND} for low noise"
        option = BY_PIPELINE[family.pipeline].option
    elif not has:
        yield from only(config, {"model.trained": "both"}, f"{path} has one network")
    if message:
        fix = f"rlfactory model={option} model.path={path}" if option else ""
        yield Problem("model.path", message, fix)


def require_plain_weights(config: Config, traits: Traits) -> Iterator[Problem]:
    """The network that is trained is not quantised: its weights have no gradient."""
    folder = folder_of(config["model"].get("path"))
    parts = () if folder is None else (folder, folder / "transformer", folder / "unet")
    for part in parts:
        quantised = read_json(part / "config.json").get("quantization_config")
        if isinstance(quantised, dict):
            method = quantised.get("quant_method", "quantised")
            message = (
                f"{config['model']['path']} has quantised weights ({method}), which are not trained"
                " here; allowed are float32, bfloat16 and float16. dequantize() of the loaded"
                " network and save_pretrained make such a folder: type model.path=FOLDER"
            )
            yield Problem("model.path", message)


def require_matching_embedded_guidance(config: Config, traits: Traits) -> Iterator[Problem]:
    """`model.embedded_guidance` is set exactly if the network takes guidance as an input."""
    model = config["model"]
    network = _part(config, traits, "transformer") if "embedded_guidance" in model else {}
    is_known = folder_of(model.get("path")) is not None or "guidance_embeds" in network
    takes = takes_guidance(network) if is_known else None
    given = model.get("embedded_guidance")
    if takes is None or takes == (given is not None):
        return
    key = "model.embedded_guidance"
    if takes:
        yield Problem(key, "is null, but this network takes guidance as an input", f"{key}=3.5")
    else:
        yield Problem(key, f"is {given:g}, but this network takes none", f"{key}=null")


def require_folders(config: Config, traits: Traits) -> Iterator[Problem]:
    """`prompt_cache` is a folder or null; `run_dir` is no empty text."""
    cache = Path(config["prompt_cache"] or "").expanduser()
    for file in [place for place in (cache, *cache.parents) if os.path.isfile(place)]:
        yield Problem("prompt_cache", f"{file} is a file; allowed is a folder, or null")
    if config["run_dir"] == "":
        message = "is empty; allowed is a folder, or null for a new one below outputs/"
        yield Problem("run_dir", message, "run_dir=null")


def _part(config: Config, traits: Traits, name: str) -> Mapping[str, Any]:
    """The configuration of a part: in its folder; of a hub id that is not here, as published."""
    path = str(config["model"].get("path"))
    if (folder := folder_of(path)) is None and is_hub_id(path):
        return published_part(path, str(traits["model"].get("pipeline")), name)
    return {} if folder is None else read_json(folder / name / "config.json")


def require_compatible_run(config: Config, traits: Traits) -> Iterator[Problem]:
    """`begin_from` names a run of the same model class, or LoRA adapters; both are tuned alike."""
    given, model, merges = config.get("begin_from"), config["model"], False
    if given is not None:
        merges = config.get("begin_as") == "merged"
        if fault := _beginning_fault(given, model, traits.get("model", {}).get("pipeline"), merges):
            yield fault
            return
    if given is None or model_of(Path(given).expanduser()) is not None:
        reason = "begin_from names no adapters" if given is None else f"{given} has all weights"
        yield from only(config, {"begin_as": "continued"}, reason)
    elif merges:
        reason = "merged adapters are part of the network that adapters are on"
        yield from only(config, {"reference_from": "start"}, reason)
    if given is None or merges:
        return
    for key, value in begun_keys(given, model.get("path")).items():
        own = model.get(key, value)
        are_lists = isinstance(own, list) and isinstance(value, list)
        if sorted(own) != sorted(value) if are_lists else own != value:
            reason = f"begin_from={given} needs another"
            yield from only(config, {f"model.{key}": value}, reason)


def _beginning_fault(
    given: str, model: Mapping[str, Any], pipeline: str | None, merges: bool
) -> Problem | None:
    """Why a model can't begin from a folder or file; None if it can."""
    run, fix = typed_path(given), ""
    former, steps = model_of(run), sorted((run / "checkpoints").glob("step_*"))
    if former is None and (file := find_adapters(run)) is not None:
        fault = _adapter_fault(file, model, pipeline, merges)
    elif former is None and any((run / n).is_file() for n in (MODEL_INDEX, *PIPELINE_INDEXES)):
        fault = f"is a whole model, and no run or adapters; type model.path={given} in its place"
    elif former is None:
        fault = "is no run folder, which has a config.yaml, and holds no LoRA adapters"
        if run.suffix == ".bin" or any(run.glob("*.bin")):
            fault += " in safetensors; what saved the .bin file can load it and save it anew"
    elif not steps:
        fault, fix = "holds no checkpoint yet", f"rlfactory resume {shlex.quote(str(run))}"
    elif former.get("finetune") == "lora" and (merges or begun_as(run) == "merged"):
        which = "is to be merged" if merges else "has others merged below its own"
        fault = f"{which}; its adapters, all in one file, lie in its checkpoints"
        fix = f"begin_from={steps[-1]}"
    else:
        fault = None if merges else incompatible_model(former, model)
    return Problem("begin_from", f"{given} {fault}", fix) if fault else None


def _adapter_fault(
    file: Path, model: Mapping[str, Any], pipeline: str | None, merges: bool
) -> str | None:
    """Why the adapters of a file are none of the network, as far as its files say."""
    path, known = model.get("path"), matrices(model.get("path"))
    try:
        adapters = read_adapters(file, pipeline, known)
    except AdapterFileError as error:
        return str(error).removeprefix(f"{file} ")
    if merges and (embedding := next((n for n in adapters.keys if "lora_embedding" in n), None)):
        name = embedding.partition(".lora_embedding")[0]
        return f"adapts the embedding {name}, which is not merged; type begin_as=continued"
    trained = model.get("trained", "both")
    own = sum(not name.startswith(f"{SECOND}.") for name in adapters.modules)
    folder = folder_of(path)
    is_pair = folder is not None and (folder / SECOND).is_dir() and "trained" in model
    if is_pair and trained == "both" and own in (0, len(adapters.modules)):
        side = "high" if own else "low"
        return (
            "holds adapters of one network, and model.trained=both trains that of high noise and"
            f" that of low noise; type model.trained={side}"
            + (" or model.trained=low, whichever they are of" if own else "")
        )
    tied = tied_modules(path, known)
    for name, widths in adapters.modules.items() if known else ():
        shape = known.get(in_files(name, known))
        if shared := {name, in_files(name, known)} & {*tied}:
            other = next(other for other in tied if other not in shared)
            return f"adapts two modules by one matrix: {shared_weight(name, other)}"
        if shape is None and (first := min(adapters.keys.values())).startswith("diffusion_model."):
            return conversion(file, first, pipeline)
        if shape is None:
            return f"adapts {name}, and {path} has no such module: it is of another model"
        if sorted(shape[:2]) != sorted(widths):
            there, here = "x".join(map(str, widths)), "x".join(map(str, shape[:2]))
            return f"adapts {name} of {there}, and in {path} it is {here}: of another model"
    return None


def incompatible_model(former: Mapping[str, Any], model: Mapping[str, Any]) -> str | None:
    """Why a model can't begin with the weights of a `former` one; None if it can."""
    for key in ("_target_", "finetune"):
        old, new = former.get(key), model.get(key)
        if old != new:
            return f"trained a model whose {key} is {old}, and here it is {new}"
    return None
