"""The parts of a pipeline's folder: which are there, in which variant, and what is missing.

Torch-free, for checks of a configuration."""

import json
import os
from pathlib import Path

from rlfactory.model.lm.model_folder import file_fault
from rlfactory.model.pipelines.families import BY_PIPELINE
from rlfactory.model.pipelines.local_models import PIPELINE_INDEX, pipeline_of, read_json

UNUSED = ("safety_checker", "feature_extractor", "image_encoder")
"""Parts that no adapter here calls."""
ENDINGS = (".safetensors", ".bin")
WITHOUT_WEIGHTS = ("tokenizer", "scheduler", "feature_extractor", "processor", "image_processor")
"""Beginnings of names of parts that are no networks."""


def _named(folder: Path) -> dict[str, bool]:
    """The parts that the index names, and whether they have a class."""
    index = read_json(folder / PIPELINE_INDEX)
    lists = {n: v for n, v in index.items() if isinstance(v, list | None) and n[0] != "_"}
    return {name: bool(value) and value[0] is not None for name, value in lists.items()}


def left_out(folder: Path) -> list[str]:
    """The parts that a pipeline is loaded without, as it has none and works so."""
    named, family = _named(folder), BY_PIPELINE.get(pipeline_of(folder) or "")
    optional = family.optional if family else ()
    unnamed = [name for name in optional if not named.get(name)]
    lost = [name for name in (*UNUSED, *optional) if named.get(name)]
    return [*unnamed, *(name for name in lost if not os.path.isdir(folder / name))]


def variant_of(folder: Path) -> str | None:
    """The variant in which parts without other weights are stored (`fp16`); None for none."""
    wanted = [found for part in _named(folder) if (found := part_variants(folder / part))]
    common = set[str].intersection(*wanted) if wanted else set[str]()
    return min(common, key=lambda name: (name != "fp16", name), default=None)


def part_variants(part: Path) -> set[str]:
    """The variants of a part that has no other weights; empty for one that has."""
    names = [file.name.split(".") for file in part.glob("*") if file.name.endswith(ENDINGS)]
    if any(len(name) == 2 for name in names):
        return set()
    return {name[1].partition("-")[0] for name in names}


def pipeline_fault(folder: Path) -> str | None:
    """What is missing of a pipeline's folder; None if its files are there."""
    named, family = _named(folder), BY_PIPELINE.get(pipeline_of(folder) or "")
    if family is None or not named:
        return None
    if None in read_json(folder / PIPELINE_INDEX).values():
        return f"has null for a part in its {PIPELINE_INDEX}; [null, null] leaves a part out"
    network = "unet" if family.network.startswith("UNet") else "transformer"
    for name in (network, "vae", "scheduler", "text_encoder", "tokenizer"):
        if not named.get(name):
            return f"has no {name} in its {PIPELINE_INDEX}, which a {family.pipeline} needs"
    absent = left_out(folder)
    for name in (name for name, is_there in named.items() if is_there and name not in absent):
        if fault := _part_fault(folder / name):
            return fault
    stored = {name: found for name in named if (found := part_variants(folder / name))}
    if stored and variant_of(folder) is None:
        shown = ", ".join(f"{name} ({', '.join(sorted(v))})" for name, v in stored.items())
        return f"has parts in different variants and no other weights: {shown}"
    return None


def _part_fault(part: Path) -> str | None:
    """What is missing of a part; None if its files are there."""
    if not os.path.isdir(part):
        return f"lacks the folder {part.name}, which its {PIPELINE_INDEX} names"
    if part.name.startswith(WITHOUT_WEIGHTS):
        return None if any(part.iterdir()) else f"has no file in its folder {part.name}"
    if not (part / "config.json").is_file():
        return f"lacks {part.name}/config.json"
    files = [file for file in part.iterdir() if file.name.endswith(ENDINGS)]
    if not files:
        return f"has no weights in its folder {part.name}"
    for index in part.glob("*.index*.json"):
        try:
            shards = {*json.loads(index.read_text("utf-8"))["weight_map"].values()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return f"has {part.name}/{index.name}, which can't be read"
        if absent := sorted(str(s) for s in shards if not (part / str(s)).is_file()):
            return f"lacks {part.name}/{absent[0]}, which {index.name} names: fetch it again"
    found = (fault for file in files if (fault := file_fault(file)))
    return next((f"has in {part.name} {fault}" for fault in found), None)
