"""`rlfactory export`: a folder that other libraries open, whole or not there at all."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from rlfactory.build import Config, make, noise_levels
from rlfactory.export.card import LORA, MERGED, WHOLE, Leaving, write_card
from rlfactory.export.snippet import Snippet, image_snippet, suit_scheduler, text_snippet
from rlfactory.run.checkpoint import load_checkpoint
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.scores import Scores
from rlfactory.zoo.models import ZOO_PREFIX, resolve


def export_run(
    run: RunFolder, config: Config, checkpoint: Path, to: Path, *, merge: bool, weights: str
) -> str:
    """Write the weight set `weights` of a checkpoint to the folder `to`; returns the code that
    loads it. Of the run's parts the model alone is made, on the CPU and in float32.
    """
    model = make(config, "model", device=torch.device("cpu"), seed=config["seed"])
    model.weights.add(weights)
    load_checkpoint(checkpoint, model)
    adapters = config["model"]["finetune"] == "lora"
    what = Leaving(
        run,
        config,
        step=int(checkpoint.name.removeprefix("step_")),
        weights=weights,
        form=(MERGED if merge else LORA) if adapters else WHOLE,
        base=_base(config, model.media),
        hub_id=_hub_id(config["model"]["path"]),
        media=model.media,
    )
    partial = _beside(to)
    try:
        snippet = _fill(partial, what, model, str(to))
        _move(partial, to)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return snippet.code


def _fill(folder: Path, what: Leaving, model: Any, path: str) -> Snippet:
    """Weights, card and pictures; `path` is where the folder will be."""
    if what.form != LORA and what.media == "images":
        suit_scheduler(model.pipe, what.config)
    snippet = _snippet(what, model, path)
    with model.weights(what.weights):
        (model.export if what.form == LORA else model.export_whole)(folder)
    if what.form == LORA:
        _name_base(folder / "adapter_config.json", what)
    write_card(folder, what, snippet)
    return snippet


def _snippet(what: Leaving, model: Any, path: str) -> Snippet:
    config, adapters, prompt = what.config, what.form == LORA, _a_prompt(what)
    if what.media == "texts":
        return text_snippet(config, adapters=adapters, path=path, prompt=prompt)
    evaluation = config["evaluation"]
    if evaluation["size"]:
        model.resolution = model.resolution_of(evaluation["size"])
    sigmas = noise_levels(make(config, "schedule"), model.resolution, evaluation["steps"])
    base = what.base if adapters else None
    return image_snippet(model, config, sigmas, base=base, path=path, prompt=prompt)


def _name_base(path: Path, what: Leaving) -> None:
    """Tell PEFT what the adapters are for."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content["base_model_name_or_path"] = what.base
    if what.media == "texts":
        content["task_type"] = "CAUSAL_LM"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _a_prompt(what: Leaving) -> str:
    """The first that was held out."""
    first = what.run.evaluation(0)
    return Scores.load(first).prompts[0] if first.is_file() else "a red circle"


def _base(config: Config, media: str) -> str:
    path = config["model"]["path"]
    found = resolve(path, "config.json" if media == "texts" else "model_index.json")
    return found if found == path and not Path(path).exists() else str(Path(found).absolute())


def _hub_id(path: str) -> str | None:
    local = path.startswith(ZOO_PREFIX) or Path(path).expanduser().exists()
    return None if local else path


def _beside(to: Path) -> Path:
    """A new folder on the same disk, so that it can be renamed; else RunFolderError."""
    try:
        to.absolute().parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=to.absolute().parent, prefix=f".{to.name}."))
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunFolderError(f"--to {to} cannot be written ({reason})") from error


def _move(partial: Path, to: Path) -> None:
    partial.chmod(0o755)
    if to.is_dir():
        to.rmdir()  # it is empty: another one was refused
    partial.rename(to)
