"""The parts of a pipeline's folder: which are there, in which variant, and what is missing.

Torch-free, for checks of a configuration."""

import os
from pathlib import Path

from rlfactory.model.pipelines.families import BY_PIPELINE
from rlfactory.model.pipelines.local_models import (
    MODULAR_INDEX,
    PIPELINE_INDEX,
    index_of,
    pipeline_of,
    read_json,
    weight_files,
    weights_fault,
)

UNUSED = (
    *("safety_checker", "feature_extractor", "image_encoder"),
    *("prompt_upsampler", "prompt_upsampler_processor"),
)
"""Parts that no adapter here calls."""
WITHOUT_WEIGHTS = ("tokenizer", "scheduler", "feature_extractor", "processor", "image_processor")
"""Beginnings of names of parts that are no networks."""


def _named(folder: Path) -> list[str]:
    """The parts that the index names with a class."""
    index = index_of(folder)
    return [n for n, v in index.items() if isinstance(v, list) and v and v[0] and n[0] != "_"]


def left_out(folder: Path) -> list[str]:
    """The parts that a pipeline is loaded without, as it has none and works so."""
    named, family = _named(folder), BY_PIPELINE.get(pipeline_of(folder) or "")
    optional = family.optional if family else ()
    lost = [n for n in (*UNUSED, *optional) if n in named and not os.path.isdir(folder / n)]
    return [*(name for name in optional if name not in named), *lost]


def variant_of(folder: Path) -> str | None:
    """The variant in which parts without other weights are stored (`fp16`); None for none."""
    found = [name for part in _named(folder) if (name := part_variant(folder / part))]
    return found[0] if found else None


def part_variant(part: Path) -> str | None:
    """The variant of a part that has no other weights; None for one that has."""
    names = [file.name.split(".") for file in weight_files(part)]
    variants = {name[1].partition("-")[0] for name in names if len(name) > 2}
    is_plain = any(len(name) == 2 for name in names)
    return None if is_plain else min(variants, key=lambda v: (v != "fp16", v), default=None)


def pipeline_fault(folder: Path) -> str | None:
    """What is missing of a pipeline's folder; None if its files are there."""
    named, family = _named(folder), BY_PIPELINE.get(pipeline_of(folder) or "")
    if family is None:
        return None
    network, file = family.network, MODULAR_INDEX if family.modular else PIPELINE_INDEX
    # the blocks of a modular pipeline make its scheduler
    for name in (network, "vae", "text_encoder", "tokenizer", *["scheduler"][family.modular :]):
        has_its_own = name == "tokenizer" and "processor" in named  # which has a tokenizer
        if name not in named and not has_its_own:
            return f"has no {name} in its {file}, which a {family.pipeline} needs"
    index = index_of(folder)
    if any(index.get(name, "") is None for name in (*UNUSED, *family.optional)):
        return f"has null for a part in its {file}; [null, null] leaves a part out"
    for part in (folder / name for name in named if name not in left_out(folder)):
        if not os.path.isdir(part) or not any(part.iterdir()):
            return f"lacks the files of {part.name}, which its {file} names"
        if not part.name.startswith(WITHOUT_WEIGHTS) and (fault := weights_fault(part)):
            return f"{fault} (in its part {part.name})"
    taken = read_json(folder / network / "config.json").get("in_channels")
    latents = read_json(folder / "vae" / "config.json").get("latent_channels", taken)
    if taken is None:
        return f"has a {network} without a config.json that says its in_channels"
    if network == "unet" and taken != latents:
        return f"has a unet that takes {taken} channels of {latents}: a picture or a mask too"
    return None
