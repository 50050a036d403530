"""Models on this machine: `zoo:NAME`, a folder, or the hub's cache; the parts that are there and
what is missing, their family and image sizes.

Torch-free, for checks of a configuration; makes no request to the hub."""

import json
import os
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.model.pipelines.families import BY_PIPELINE
from rlfactory.model.pipelines.shipped import zoo_path
from rlfactory.utils.data_files import parse_json, require_file

ZOO_PREFIX = "zoo:"
ENCODERS = ("text_encoder", "image_encoder")
"""How components of pipelines begin that encode prompts and their pictures."""
WEIGHTS = (
    *("model*.safetensors", "diffusion_pytorch_model*.safetensors"),
    *("pytorch_model*.bin", "diffusion_pytorch_model*.bin"),
)
POINTER = b"version https://git-lfs"


def resolve(path: str, *indexes: str) -> str:
    """The folder of a shipped model (`zoo:NAME`), a local folder, or a hub id unchanged. ValueError
    where no such model ships, or there is no such folder, or it has none of `indexes`, the files
    that make a folder a model (`config.json`).
    """
    if path.startswith(ZOO_PREFIX):
        return str(zoo_path(path.removeprefix(ZOO_PREFIX)))
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not any((folder / index).is_file() for index in indexes):
            raise ValueError(f"{folder} {without_index(folder, indexes[0])}")
        return str(folder)
    if path.startswith(("~", ".", "/")) or path.count("/") > 1:
        raise ValueError(f"there is no folder {folder}")
    return path


def without_index(folder: Path, index: str) -> str:
    """Why a folder that lacks its index is no model."""
    if (folder / "adapter_config.json").is_file():
        merged = "merge_and_unload() of the PeftModel and save_pretrained(FOLDER) make one"
        return f"holds adapters and no model; {merged}"
    return f"holds no {index}, so it is no model"


def folder_of(path: object) -> Path | None:
    """The local folder of `zoo:NAME`, a folder or a hub id; None if this machine has none."""
    if not isinstance(path, str):
        return None
    if path.startswith(ZOO_PREFIX):
        try:
            return zoo_path(path.removeprefix(ZOO_PREFIX))
        except ValueError:
            return None
    folder = Path(path).expanduser()
    return folder if os.path.isdir(folder) else snapshot(path)


def snapshot(repo: str) -> Path | None:
    """The folder of a hub id's latest download; None if there is none."""
    if repo.count("/") != 1:
        return None
    cached = hub_cache() / f"models--{repo.replace('/', '--')}"
    try:
        commit = (cached / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    folder = cached / "snapshots" / commit
    return folder if os.path.isdir(folder) else None


def hub_cache() -> Path:
    """huggingface_hub's cache folder, by the environment variables that it reads."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{base}/huggingface"
    folder = os.environ.get("HF_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(folder)).expanduser()


def is_offline() -> bool:
    """Whether huggingface_hub is set to offline mode."""
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in ("1", "ON", "YES", "TRUE")


def read_json(path: Path) -> Mapping[str, Any]:
    """The content of a JSON file; empty if it is missing, broken or no mapping."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def weight_files(folder: Path) -> list[Path]:
    """The files of a network's weights that transformers and diffusers load."""
    found = sorted(file for name in WEIGHTS for file in folder.glob(name))
    return [file for file in found if file.suffix == found[0].suffix]  # .safetensors before .bin


def weights_fault(folder: Path) -> str | None:
    """The missing part of the weights in a folder; None if they are there."""
    files = weight_files(folder)
    plain = any(file.name.count(".") == 1 for file in files)
    indexes = folder.glob("*.index.json" if plain else "*.index*.json")
    for index in (i for i in indexes if not files or files[0].suffix in i.suffixes):
        named = read_json(index).get("weight_map")
        shards = {*map(str, named.values())} if isinstance(named, dict) else {"its weight_map"}
        if absent := sorted(shards - {file.name for file in files}):
            return f"lacks {', '.join(absent[:3])}, which {index.name} names: fetch it again"
    if not files:
        return "holds no weights: no .safetensors, .bin or single .gguf file"
    for file in files:
        size, fault = file.stat().st_size, f"has a {file.name} that is cut short: fetch it again"
        with file.open("rb") as stream:
            if stream.read(len(POINTER)) == POINTER:
                return f"has a pointer in place of {file.name}: `git lfs pull` fetches the weights"
        if file.suffix == ".safetensors":
            try:
                entries = read_header(file)
            except (ValueError, struct.error):
                return fault
            ends = [v["data_offsets"][1] for k, v in entries.items() if k != METADATA]
            if size < max(ends, default=0):
                return fault
    return None


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
    """The missing part of a pipeline's folder; None if its files are there."""
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


PIPELINE_INDEX, MODEL_INDEX = "model_index.json", "config.json"
MODULAR_INDEX = "modular_model_index.json"
PIPELINE_INDEXES = (PIPELINE_INDEX, MODULAR_INDEX)
"""Of pipelines and of modular ones; a folder with both is an ordinary pipeline."""

OPTIONS = {pipeline: family.option for pipeline, family in BY_PIPELINE.items()}
"""The option of the group `model` to start from, by pipeline class."""
LANGUAGE_OPTION = "causal_lm"
TEXT_TO_IMAGE = re.compile(r"(Img2Img|Inpaint)(?=Pipeline$)")
"""What to remove from a pipeline's name to have that of the text-to-image pipeline."""


def index_of(folder: Path) -> Mapping[str, Any]:
    """The index of a pipeline's folder, of a modular one too in the one form; empty without one."""
    if (folder / PIPELINE_INDEX).is_file():
        return read_json(folder / PIPELINE_INDEX)
    return plain_index(read_json(folder / MODULAR_INDEX))


def plain_index(index: Mapping[str, Any]) -> dict[str, Any]:
    """An index whose parts are `[library, class]`, as modular pipelines have these two beside where
    each part lies, and null before it is loaded.
    """
    plain = dict(index)
    for name, value in index.items():
        if isinstance(value, list | tuple) and len(value) == 3 and isinstance(value[2], dict):
            plain[name] = list(value[2].get("type_hint") or (None, None))
    return plain


def pipeline_of(folder: Path) -> str | None:
    """The text-to-image pipeline class of a folder; None if its index does not say."""
    name = index_of(folder).get("_class_name")
    # img2img and inpainting pipelines have the same components
    return TEXT_TO_IMAGE.sub("", name) if isinstance(name, str) else None


Part = Mapping[str, Any]
"""The configuration of a part of a pipeline; empty where it is not known."""


def sizes_of(vae: Part, network: Part, pipeline: str) -> tuple[int, int | None] | None:
    """The unit of image sizes and the largest one, in pixels; None if the files do not say."""
    family, factor = BY_PIPELINE.get(pipeline), latent_pixels(vae)
    if factor is None:
        return None
    if family and family.patch:
        return factor * family.patch, None
    patch, positions = network.get("patch_size"), network.get("pos_embed_max_size")
    if not isinstance(patch, int) or not (family or positions):
        return None
    return factor * patch, factor * patch * positions if isinstance(positions, int) else None


def latent_pixels(vae: Part) -> int | None:
    """Pixels of an autoencoder's latent along an edge."""
    if isinstance(scaled := vae.get("spatio_temporal_scaling"), list):
        return int(vae["patch_size"] * 2 ** sum(scaled))
    if isinstance(steps := vae.get("temperal_downsample"), list):
        return int(2 ** len(steps))
    blocks = vae.get("block_out_channels") or vae.get("encoder_block_out_channels")
    return int(2 ** (len(blocks) - 1)) if isinstance(blocks, list) and blocks else None


def latent_group(vae: Part) -> int:
    """Frames of an autoencoder's latent, after the first one; 1 where the files do not say."""
    halvings = vae.get("spatio_temporal_scaling") or vae.get("temperal_downsample") or ()
    return int(vae.get("patch_size_t") or 1) * int(2 ** sum(halvings))


def image_size(model: Mapping[str, Any]) -> tuple[int, int] | None:
    """Height and width of what a model makes, by its node; None where its adapter has no `size`."""
    return None if model.get("size") is None else height_and_width(model["size"])


def height_and_width(size: int | Sequence[int]) -> tuple[int, int]:
    """The edges of a size, a square's or both; ValueError for another number of edges."""
    edges = (size, size) if isinstance(size, int) else tuple(size)
    if len(edges) != 2:
        raise ValueError(f"size={[*edges]} has {len(edges)} edges; type [HEIGHT, WIDTH]")
    return edges[0], edges[1]


def nearest_sizes(size: int, unit: int, largest: int | None = None) -> list[int]:
    """The multiples of `unit` next to `size`, the nearest first, at most `largest`."""
    low = max(size // unit, 1) * unit
    if largest is not None and low >= largest:
        return [largest]
    candidates = {low, max(-(-size // unit), 1) * unit}
    return sorted(candidates, key=lambda value: (abs(value - size), value))


def takes_guidance(network: Part) -> bool | None:
    """Whether a Flux network has guidance as an input; None if it is not known."""
    return bool(network.get("guidance_embeds", False)) if network else None


LARGEST_HEADER = 100_000_000
"""Bytes, the limit of the format."""


METADATA = "__metadata__"


def _is_entry(value: Any) -> bool:
    """Whether a value is what a header says of a tensor."""
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        return False
    numbers = value["shape"], value["data_offsets"]
    are_lists = all(type(given) is list for given in numbers)
    kinds = {*map(type, [*numbers[0], *numbers[1]])} if are_lists else {None}
    return kinds <= {int} and type(value["dtype"]) is str


def read_header(file: Path) -> dict[str, Any]:
    """Dtype and shape of each tensor by its name, and `__metadata__`: 8 bytes of length, then JSON.
    ValueError where it is no safetensors file, OSError where it can't be read, struct.error where
    it is shorter than 8 bytes.
    """
    require_file(file)
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > LARGEST_HEADER:
            raise ValueError(f"{file} is no safetensors file")
        header: dict[str, Any] = parse_json(stream.read(length).decode(), file)
    for name, entry in header.items():
        if name != METADATA and not _is_entry(entry):
            raise ValueError(f"{file} is no safetensors file: its {name} is {entry!r:.60}")
    return header
