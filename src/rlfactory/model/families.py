"""Which family a folder's model belongs to, and what its pictures' sizes are: from its small files,
before anything is loaded.
"""

import re
from pathlib import Path

from rlfactory.model.places import read_json

PIPELINE_INDEX, MODEL_INDEX = "model_index.json", "config.json"

# the class that a family's adapter loads, and the option of `model` to begin with
OPTIONS = {
    "StableDiffusionPipeline": "sd14",
    "StableDiffusion3Pipeline": "sd35",
    "FluxPipeline": "flux",
}
LANGUAGE_OPTION = "gpt2"


def pipeline_of(folder: Path) -> str | None:
    """The class of a folder's pipeline, by its text-to-image name; None where it does not say."""
    name = read_json(folder / PIPELINE_INDEX).get("_class_name")
    # img2img and inpainting are other ways to use the same parts
    return re.sub(r"(Img2Img|Inpaint)(?=Pipeline$)", "", name) if isinstance(name, str) else None


def is_language_model(folder: Path) -> bool:
    """Whether a folder holds a model of transformers that writes."""
    kinds = read_json(folder / MODEL_INDEX).get("architectures")
    return any(str(kind).endswith(("LMHeadModel", "ForCausalLM")) for kind in kinds or ())


def sizes_of(folder: Path, pipeline: str) -> tuple[int, int | None] | None:
    """The unit that sizes are multiples of and the largest size; None where the files don't say."""
    vae = read_json(folder / "vae" / "config.json")
    network = read_json(folder / "transformer" / "config.json")
    blocks = vae.get("block_out_channels")
    if not isinstance(blocks, list) or not blocks:
        return None
    factor = 2 ** (len(blocks) - 1)
    if pipeline == "StableDiffusionPipeline":
        return factor, None
    if pipeline == "FluxPipeline":
        return 2 * factor, None  # two by two latents make a token
    patch, positions = network.get("patch_size"), network.get("pos_embed_max_size")
    if not isinstance(patch, int) or not isinstance(positions, int):
        return None
    return factor * patch, factor * patch * positions


def nearest_sizes(size: int, unit: int, largest: int | None = None) -> list[int]:
    """The multiples of `unit` next to `size`, the nearer first, none beyond `largest`."""
    low = max(size // unit, 1) * unit
    if largest is not None and low >= largest:
        return [largest]
    around = {low, max(-(-size // unit), 1) * unit}
    return sorted(around, key=lambda value: (abs(value - size), value))


def takes_guidance(folder: Path) -> bool | None:
    """Whether a Flux network takes guidance as an input; None where its folder does not say."""
    network = read_json(folder / "transformer" / "config.json")
    return bool(network.get("guidance_embeds", False)) if network else None
