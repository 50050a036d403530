"""Where a model lies, and what the small files of its folder already say."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlfactory.crossings.base import Config, Traits
from rlfactory.model.families import (
    LANGUAGE_OPTION,
    MODEL_INDEX,
    OPTIONS,
    PIPELINE_INDEX,
    is_language_model,
    nearest_sizes,
    pipeline_of,
    sizes_of,
    takes_guidance,
)
from rlfactory.model.places import folder_of, hub_cache, is_offline, snapshot
from rlfactory.problems import Problem


def model_folders_hold_models(config: Config, traits: Traits) -> Iterator[Problem]:
    """A path to a model leads to one of the kind that is asked for."""
    index = MODEL_INDEX if traits["model"].get("media") == "texts" else PIPELINE_INDEX
    shipped = Path(__file__).parents[1] / "zoo" / "weights"
    names = sorted(p.parent.name for p in shipped.glob(f"*/{index}"))
    for key in ("path", "value_path"):
        path = config["model"].get(key)
        if not isinstance(path, str):
            continue
        if key == "path" and (fault := _family_fault(path, traits)):
            yield Problem("model.path", *fault)
        elif wrong := _model_fault(path, index, names):
            yield Problem(f"model.{key}", f"{path} {wrong}", f"model.{key}=zoo:{names[-1]}")


def _family_fault(path: str, traits: Traits) -> tuple[str, str] | None:
    """What is wrong with a model of another family, and the command that trains it."""
    wanted, folder = traits["model"].get("pipeline"), folder_of(path)
    of_texts = traits["model"].get("media") == "texts"
    if folder is None or (wanted is None and not of_texts):
        return None
    found = pipeline_of(folder)
    if found is None:
        writes = not of_texts and is_language_model(folder)
        kind, option = ("language model", LANGUAGE_OPTION) if writes else (None, None)
    elif found != wanted:
        kind, option = found, OPTIONS.get(found)
    else:
        return None
    if kind is None:
        return None
    remedy = f"rlfactory model={option} model.path={path}" if option else ""
    known = "" if option else f"; known are {', '.join(OPTIONS)}"
    return f"{path} is a {kind}, not a {wanted or 'language model'}{known}", remedy


def _model_fault(path: str, index: str, shipped: list[str]) -> str | None:
    folder = Path(path).expanduser()
    if path.startswith("zoo:"):
        known = path.removeprefix("zoo:") in shipped
        return None if known else f"does not ship; these do: {', '.join(shipped)}"
    if os.path.isdir(folder):
        return None if os.path.isfile(folder / index) else f"holds no {index}, so it is no model"
    if path.startswith(("/", ".", "~")) or path.count("/") != 1:
        return "does not exist; allowed are a folder, zoo:NAME or a hub id OWNER/NAME"
    if is_offline() and snapshot(path) is None:
        return (
            f"is not in {hub_cache()}, and HF_HUB_OFFLINE is set; unset it, fetch it where there"
            f" is a network (`hf download {path}`, behind `hf auth login` where its terms ask for a"
            " login), or name a folder"
        )
    return None


def sizes_divide(config: Config, traits: Traits) -> Iterator[Problem]:
    """Pictures are of a size that the autoencoder and the network can divide."""
    folder, pipeline = _folder(config), traits["model"].get("pipeline")
    found = sizes_of(folder, pipeline) if folder and pipeline else None
    if found is None:
        return
    unit, largest = found
    asked = {
        "model.size": config["model"].get("size"),
        "evaluation.size": config["evaluation"]["size"],
    }
    for key, size in asked.items():
        if isinstance(size, int) and (size % unit or size > (largest or size)):
            near = nearest_sizes(size, unit, largest)
            most = f" up to {largest}" if largest else ""
            shown = " and ".join(map(str, sorted(near)))
            message = f"is {size}; this model takes multiples of {unit}{most}, nearest {shown}"
            yield Problem(key, message, f"{key}={near[0]}")


def guidance_fits_network(config: Config, traits: Traits) -> Iterator[Problem]:
    """Guidance is an input of some networks, and unknown to others."""
    model, folder = config["model"], _folder(config)
    takes = takes_guidance(folder) if folder and "embedded_guidance" in model else None
    given = model.get("embedded_guidance")
    if takes is None or takes == (given is not None):
        return
    key = "model.embedded_guidance"
    if takes:
        yield Problem(key, "is null, but this network takes guidance as an input", f"{key}=3.5")
    else:
        yield Problem(key, f"is {given:g}, but this network takes none", f"{key}=null")


def prompt_cache_is_a_folder(config: Config, traits: Traits) -> Iterator[Problem]:
    """Embeddings are kept in a folder, or nowhere."""
    place = config["prompt_cache"]
    path = Path(place).expanduser() if place is not None else Path()
    file = next((p for p in (path, *path.parents) if os.path.isfile(p)), None)
    if file is not None:
        yield Problem("prompt_cache", f"{file} is a file; allowed is a folder, or null")


def _folder(config: Config) -> Path | None:
    path: Any = config["model"].get("path")
    return folder_of(path) if isinstance(path, str) else None
