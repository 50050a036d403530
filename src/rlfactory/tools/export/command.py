"""`rlfactory export`: writes a folder that other libraries load, complete or not at all."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from diffusers.utils.state_dict_utils import convert_state_dict_to_kohya
from safetensors.torch import save_file
from torch import Tensor
from transformers import GenerationConfig

from rlfactory.dynamics.token import Token
from rlfactory.model.pipelines.adapter_files import ORIGINAL_SDXL
from rlfactory.model.pipelines.families import UNETS
from rlfactory.model.pipelines.modular import name_place
from rlfactory.model.pipelines.noise_levels import noise_levels
from rlfactory.run.checkpoint.load import holds_critic, load_checkpoint
from rlfactory.run.disk_errors import OF_DISK, explain_disk_errors
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.scores import Scores
from rlfactory.tools.export.base_model import base_model, forget_locations
from rlfactory.tools.export.card import FULL, LORA, MERGED, ExportInfo, write_card
from rlfactory.tools.export.snippet import (
    Snippet,
    Source,
    image_snippet,
    set_scheduler,
    text_snippet,
)
from rlfactory.tools.export.upload import Upload
from rlfactory.tools.restore import add_weight_sets, found_checkpoint, located_config
from rlfactory.train.build import instantiate_group, merge_adapters_below
from rlfactory.utils.dotted_keys import Config
from rlfactory.utils.errors import UserError

HERE = "."
HERE_NOTE = (
    "`.` is this folder: run the code in it, or write the folder's path, or its name on the hub, in"
    " the place of `.`."
)


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        weights: the weight set: `policy`, `ema`, ...
        in_one_file: adapters in one file, with the names that ComfyUI reads.
        repo: the repository of the hub that the folder will be uploaded to, for its card.
    """

    weights: str
    merge: bool = False
    in_one_file: bool = False
    repo: str | None = None


def export(
    path: Path,
    to: Path | None,
    options: ExportOptions,
    best: bool,
    moved: Mapping[str, str] | None = None,
    upload: Upload | None = None,
) -> None:
    """Write a run's weights for other libraries, and print the code that loads them.

    Args:
        to: the folder to write to, which must not exist or be empty; None, with `upload`, for a
            temporary one.
        best: take the best checkpoint by evaluation score instead of the newest one.
        moved: paths by key, where the run's model lies elsewhere now.
    """
    with found_checkpoint(path, best) as checkpoint, TemporaryDirectory() as temporary:
        if upload is not None:
            upload.prepare()
        written = to or Path(temporary) / "export"
        config = located_config(path, moved)
        code = export_run(RunFolder(path), config, checkpoint, written, options)
        if to is not None:
            print(f"exported to {to}; its card is {to / 'README.md'}.")
        if upload is not None:
            print(f"uploaded to {upload.upload(written)}")
    print(f"to load it:\n\n{code}")


def export_run(
    run: RunFolder, config: Config, checkpoint: Path, to: Path, options: ExportOptions
) -> str:
    """Write a weight set of a checkpoint to the folder `to`; returns loading code.

    Of the run's components only the model is built, on the CPU in float32.

    Raises:
        UserError: the folder can't be written, or the run has no adapters for one file.
    """
    has_adapters = config["model"]["finetune"] == "lora"
    form = (MERGED if options.merge else LORA) if has_adapters else FULL
    made = {"device": torch.device("cpu"), "seed": config["seed"]}
    model = instantiate_group(config, "model", **made, has_critic=holds_critic(checkpoint))
    merge_adapters_below(config, model)
    if options.in_one_file:
        if form != LORA or model.media != "images":
            raise UserError(
                f"--format comfyui: is for LoRA adapters of image models, and this exports {form}"
                f" of {model.media}; leave it out"
            )
        lost = [key for key in model.lora.state_dict() if key.startswith(model.outside_comfyui)]
        if lost:
            parts = ", ".join(sorted({key.partition(".")[0] for key in lost}))
            raise UserError(
                f"--format comfyui: ComfyUI would leave out the adapters of {parts}, which it does"
                f" not know of {model.pipeline}; leave it out"
            )
    add_weight_sets(model, config, [options.weights])
    load_checkpoint(checkpoint, model)
    name = (options.repo or to.absolute().name).split("/")[-1]
    info = ExportInfo(
        run,
        config,
        step=int(checkpoint.name.removeprefix("step_")),
        weights=options.weights,
        form=form,
        base=base_model(config, model.media),
        media=model.media,
        pictures=getattr(model, "pictures", False),
        networks=[*getattr(model, "trained_networks", ())],
        file=f"{name}.safetensors" if options.in_one_file else None,
    )
    with _new_folder(to) as partial:
        snippet = _fill(partial, info, model, options, str(to.absolute()))
    return snippet.code


def _fill(folder: Path, info: ExportInfo, model: Any, options: ExportOptions, path: str) -> Snippet:
    """Write weights, card and images to `folder`, which will be renamed to `path`.

    Returns the code that loads it on this machine, or from the hub if it will be there.
    """
    if info.form != LORA and info.media != "texts":
        set_scheduler(model.pipe, info.config)
    adapters, base, repo = info.form == LORA, info.base, options.repo
    published, local = Source(repo or HERE), Source(path)
    if adapters:
        published = Source(repo or HERE, base.expression, info.file, base.imports)
        local = Source(path, base.local_expression, info.file)
    # before `export_merged`, after which the model has no adapters
    snippets = [_snippet(info, model, source) for source in (published, local)]
    with model.weights(info.weights):
        _write_weights(folder, info, model)
    forget_locations(folder)
    name_place(folder, repo)
    notes = [*([] if repo else [HERE_NOTE]), *(base.notes if adapters else [])]
    write_card(folder, info, snippets[0], notes)
    return snippets[0 if repo else 1]


def _write_weights(folder: Path, info: ExportInfo, model: Any) -> None:
    if info.form != LORA:
        model.export_merged(folder)
        if info.media == "texts":
            # what draws from the folder draws as the run, without the settings of the base
            GenerationConfig(**_generation(info, model)).save_pretrained(folder)
    elif info.file is None:
        model.export(folder)
        for path in folder.rglob("adapter_config.json"):  # one of each network
            content = json.loads(path.read_text(encoding="utf-8"))
            content["base_model_name_or_path"] = info.base.hub_id
            if info.media == "texts":
                content["task_type"] = "CAUSAL_LM"
            path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    else:
        own = model.lora.metadata()
        options = {"pipeline": model.pipeline, "rank": own["r"], "alpha": own["lora_alpha"]}
        write_lora_file(folder / info.file, model.lora.state_dict(), **options)


def _snippet(info: ExportInfo, model: Any, source: Source) -> Snippet:
    config, first = info.config, info.run.evaluation(0)
    prompt = Scores.load(first).prompts[0] if first.is_file() else "a red circle"
    if info.media == "texts":
        return text_snippet(
            config,
            source,
            prompt=prompt,
            begins_with_end=model.begin_with_end,
            generation=_generation(info, model),
            messages=model.prompts.messages_of_transcript(prompt),
            auto_class=model.auto_class,
        )
    evaluation = config["evaluation"]
    if evaluation["size"]:
        model.resolution = model.resolution_of(evaluation["size"])
    schedule = instantiate_group(config, "schedule")
    sigmas = noise_levels(schedule, model.resolution, evaluation["steps"])
    return image_snippet(model, config, sigmas, source, prompt=prompt)


def _generation(info: ExportInfo, model: Any) -> dict[str, Any]:
    """Options of a `GenerationConfig` with which transformers draws as the run does."""
    dynamics = info.config["dynamics"]
    names = ("stop_at_end", "stop", "stop_match")
    # with `stop_match=token` the stop texts are end tokens too
    ends = model.stop_ids(Token(**{n: dynamics[n] for n in names if n in dynamics})).tolist()
    drawn = {name: dynamics[name] for name in ("temperature", "top_k", "top_p")}
    of_ends = {"eos_token_id": ends or None, "pad_token_id": model.tokenizer.pad_token_id}
    # ids that no token has: the run never draws them
    unused = {"suppress_tokens": [*model.unused_ids]} if model.unused_ids else {}
    return {"do_sample": True, "max_new_tokens": dynamics["length"], **drawn, **of_ends, **unused}


@contextmanager
def _new_folder(to: Path) -> Iterator[Path]:
    """A folder beside `to`, on the same disk, which is renamed to it at the end."""
    try:
        to.absolute().parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=to.absolute().parent, prefix=f".{to.name}."))
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunFolderError(f"--to {to} cannot be written ({reason})") from error
    try:
        with explain_disk_errors(partial.parent, str(to), resumes=False, numbers=OF_DISK):
            yield partial
            partial.chmod(0o755)
            if to.is_dir():
                to.rmdir()  # empty: the command refuses others
            partial.rename(to)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def write_lora_file(
    path: Path, state: Mapping[str, Tensor], *, pipeline: str, rank: int, alpha: float
) -> None:
    """Write adapters to one file, with the key names that ComfyUI reads of each family.

    Of UNets these are the names of kohya's sd-scripts, with an alpha for each layer. Of
    transformers they are diffusers' names, and the scale alpha / rank is multiplied into the
    matrices, since such files name no alpha. diffusers and other programs read both.

    Args:
        state: A `[rank, in, ...]` and B `[out, rank, ...]` of each layer, by PEFT's names.
        pipeline: the class of the diffusers pipeline.
        rank, alpha: of all adapters, which are scaled by alpha / rank.
    """
    if pipeline in UNETS:
        for name, original in ORIGINAL_SDXL.items():
            state = {key.replace(name, original): value for key, value in state.items()}
        content = convert_state_dict_to_kohya({f"unet.{key}": v for key, v in state.items()})
        # the converter writes the rank
        content |= {key: torch.tensor(float(alpha)) for key in content if key.endswith(".alpha")}
    else:
        scales = {key: alpha / rank if ".lora_B." in key else 1 for key in state}
        content = {f"transformer.{key}": v * scales[key] for key, v in state.items()}
    header = {"format": "pt", "ss_network_module": "networks.lora"}
    header |= {"ss_network_dim": str(rank), "ss_network_alpha": str(float(alpha))}
    save_file({key: value.contiguous() for key, value in content.items()}, path, header)
