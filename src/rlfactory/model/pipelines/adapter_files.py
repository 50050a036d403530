"""LoRA adapters in a file or a folder, as diffusers, PEFT and kohya's sd-scripts save them.

Torch-free, for checks of a configuration."""

import json
import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from rlfactory.model.pipelines.families import BY_PIPELINE, UNETS
from rlfactory.model.pipelines.local_models import read_header, read_json
from rlfactory.utils.types import LoraTargets

Number = TypeVar("Number", int, float)
FILES = ("adapter_model.safetensors", "pytorch_lora_weights.safetensors")
"""PEFT's and diffusers' names for them."""
PREFIXES = ("base_model.model.", "transformer.", "unet.", "diffusion_model.")
ALL_LINEAR = "all-linear"
MATRIX = re.compile(r"\.(lora_(?:embedding_)?[AB])(?:\.default)?(\.weight)?$")
"""The end of the name of an adapter's matrix, by PEFT."""
FORMER = {".lora.down.": ".lora_A.", ".lora.up.": ".lora_B."}
"""Names of matrices in the files that diffusers' training scripts save, and PEFT's."""
ORIGINAL = re.compile(r"\b(double_blocks|single_blocks|joint_blocks)\.")
"""Modules of networks' original code, which diffusers has under other names."""
KOHYA = re.compile(r"^lora_([a-z]+\d*)_(.+)\.(lora_down\.weight|lora_up\.weight|alpha)$")
"""Names of kohya's: the network, the module with `_` for each dot, and the matrix or its alpha."""
ORIGINAL_SDXL = {
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
}
"""Modules of SDXL that files with kohya's names call as its original code."""
KOHYAS = {"lora_down.weight": "lora_A.weight", "lora_up.weight": "lora_B.weight"}
CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""How PEFT begins adapters whose model it changes too, by `init_lora_weights`."""
OF_DIFFUSERS = ("transformer.", "unet.", "text_encoder")
"""How names begin in files that a pipeline of diffusers saves."""
VARIANTS = ("alora_invocation_tokens", "kasa_config", "use_bdlora", "arrow_config")
"""Options with which PEFT's adapters compute something else than B A, from the same matrices."""
WHOLE = (
    "merge_and_unload() of PEFT and save_pretrained(FOLDER) make a model of it: type"
    " model.path=FOLDER"
)
SCALARS, SIZES = {"F64": "<d", "F16": "<e"}, {"F64": 8, "F16": 2, "BF16": 2}
"""How numbers are unpacked, and their bytes, where these are not a float32's."""


class AdapterFileError(ValueError):
    """A file that holds no adapters that can be read; the message says why."""


@dataclass(frozen=True)
class AdapterFile:
    """Adapters on disk.

    Attributes:
        path: the file.
        keys: the name of each tensor in the file, by its name in the network,
            `transformer_blocks.0.attn.to_q.lora_A.weight`.
        rank: of all adapters.
        alpha: of all adapters, which are scaled by alpha / rank.
        shapes: of each tensor, by its name in the network.
    """

    path: Path
    keys: Mapping[str, str]
    rank: int
    alpha: float
    shapes: Mapping[str, Sequence[int]]

    @cached_property
    def modules(self) -> dict[str, tuple[int, int]]:
        """The width of input and output of each adapted module."""
        inputs = {MATRIX.sub("", key): shape[1] for key, shape in self.shapes.items() if is_a(key)}
        outputs = {MATRIX.sub("", k): shape[0] for k, shape in self.shapes.items() if not is_a(k)}
        return {name: (width, outputs.get(name, 0)) for name, width in inputs.items()}

    def targets(self, known: Collection[str]) -> list[str]:
        """Targets that adapt the same modules, of `known` ones; whole names where these are not."""
        short = sorted({*map(ending, self.modules)})
        alike = {in_files(name, known) for name in self.modules}
        hit = {name for name in with_containers(known) if is_target(name, short)}
        return short if hit == alike else sorted(self.modules)


def ending(name: str) -> str:
    """A module's name without the block that it is in."""
    return re.sub(r"^.*\.\d+\.(?=[a-z])", "", name)


def in_files(name: str, known: Collection[str]) -> str:
    """A module as files have it: those of some networks leave out the network's own name."""
    return name if name in known else name.partition(".")[2]


def with_containers(known: Iterable[str]) -> set[str]:
    """Modules of a file, and others that it implies: what holds them, and what is before one in a
    sequence, such as an activation.
    """
    found = set[str]()
    for name in known:
        parts = name.split(".")
        found |= {".".join(parts[: i + 1]) for i in range(len(parts))}
        if parts[-1].isdigit():
            found |= {".".join([*parts[:-1], str(i)]) for i in range(int(parts[-1]))}
    return found


def is_target(name: str, targets: LoraTargets) -> bool:
    """Whether targets name a module, as PEFT reads them: endings of names, or an expression."""
    if isinstance(targets, str):
        return re.fullmatch(targets, name) is not None
    return any(name == target or name.endswith(f".{target}") for target in targets or ())


def with_all_linear(targets: LoraTargets) -> LoraTargets:
    """Targets with PEFT's word `all-linear` as PEFT takes it: not as an item of a list."""
    words = [targets] if isinstance(targets, str) else targets or []
    return ALL_LINEAR if [word.lower() for word in words] == [ALL_LINEAR] else targets


def count_targets(targets: LoraTargets, linear: int) -> int | None:
    """How many modules of a block are adapted, of as many `linear` layers; None: the default."""
    targets = with_all_linear(targets)
    if isinstance(targets, list) and targets:
        return len({*map(ending, targets)})
    return linear if targets else None


def shared_adapter(model: Any) -> tuple[str, str] | None:
    """A module with adapters whose weight is another's too, and that other; None if none is."""
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        if (weight := module._parameters.get("weight")) is not None:
            owners.setdefault(id(weight), []).append(name.removeprefix("base_model.model."))
    for names in filter(lambda names: len(names) > 1, owners.values()):
        for name in names:
            if name.endswith(".base_layer"):
                other = next(other for other in names if other != name)
                return name.removesuffix(".base_layer"), other.removesuffix(".base_layer")
    return None


def shared_weight(name: str, other: str) -> str:
    """Why a module that shares its weight is not adapted."""
    return (
        f"{name} shares its weight with {other}: merged into it, an adapter of the one would change"
        " both. model.lora_targets=all-linear adapts all other matrices, and model.finetune=full"
        " trains the shared one too"
    )


def find_adapters(path: Path) -> Path | None:
    """The file of adapters that `path` is or that lies in the folder `path`; None without one."""
    if path.is_file():
        return path if path.suffix == ".safetensors" else None
    return next((path / name for name in FILES if (path / name).is_file()), None)


def read_adapters(
    path: Path, pipeline: str | None = None, known: Collection[str] = ()
) -> AdapterFile:
    """The content of a file of adapters, from its header, for a pipeline of diffusers, by its class
    (None: a language model), and a network whose modules, by which kohya's names are read, are
    `known`.

    AdapterFileError where it has other tensors than adapters by the names of PEFT or of `known`
    modules, or several ranks or alphas; the message converts other files by `pipeline`.
    """
    try:
        header = read_header(path)
    except (OSError, ValueError, struct.error) as error:
        raise AdapterFileError(f"{path} is no safetensors file") from error
    metadata = header.pop("__metadata__", {})
    options = read_json(path.with_name("adapter_config.json")) if path.name == FILES[0] else {}
    if (kind := options.get("peft_type", "LORA")) != "LORA":
        raise AdapterFileError(f"{path} is of {kind}; adapters that can be trained on are LoRA")
    if texts := sorted(k for k in header if k.startswith(("lora_te", "text_encoder"))):
        raise AdapterFileError(
            f"{path} adapts text encoders too ({texts[0]}), which are not trained here; allowed are"
            " files of the network alone (kohya's network_train_unet_only, diffusers without"
            f" --train_text_encoder), or {_whole(path, texts[0], pipeline)}"
        )
    names = _from_kohya(header, known) or {key: _in_network(key) for key in header}
    if foreign := sorted(k for k, n in names.items() if not MATRIX.search(n) or ORIGINAL.search(n)):
        raise AdapterFileError(f"{path} {_foreign(path, foreign[0], pipeline)}")
    shapes = {name: header[key]["shape"] for key, name in names.items()}
    if not shapes:
        raise AdapterFileError(f"{path} holds no tensors")
    ranks = {shape[0] for key, shape in shapes.items() if is_a(key)}
    instead = _whole(path, min(header), pipeline)
    rank = _only(ranks, f"{path} has adapters of several ranks", instead)
    default = 8 if options else None  # PEFT's, of a configuration that says no alpha
    if not options:  # PEFT's in diffusers' metadata; without any a loader takes the rank for alpha
        saved = json.loads(metadata.get("lora_adapter_metadata", "{}"))
        options = {key.rpartition(".")[2]: value for key, value in saved.items()}
    begun = str(options.get("init_lora_weights")).lower()
    if begun.startswith(CHANGES_BASE):
        raise AdapterFileError(f"{path} was begun by {begun}, which changed its model too; {WHOLE}")
    if variants := [name for name in VARIANTS if options.get(name)]:
        raise AdapterFileError(f"{path} has PEFT's {variants[0]}; allowed are plain adapters")
    own = _scalars(path, header)
    alpha = options.get("lora_alpha") or default or min(own, default=rank)
    alphas = own | _by_pattern(path, options.get("alpha_pattern") or {}, shapes, alpha)
    alpha = _only(alphas, f"{path} has adapters of several alphas", instead)
    if options.get("use_rslora"):  # scaled by alpha / sqrt(rank)
        alpha *= rank**0.5
    return AdapterFile(path, {n: key for key, n in names.items()}, rank, float(alpha), shapes)


def _only(found: Collection[Number], several: str, instead: str) -> Number:
    """The one that all adapters of a file have."""
    if len(found) != 1:
        raise AdapterFileError(f"{several}: {sorted(found)}; {instead}")
    (one,) = found
    return one


def _by_pattern(
    path: Path, patterns: Mapping[str, float], names: Iterable[str], default: float
) -> set[float]:
    """The alphas of matrices by PEFT's `alpha_pattern`: expressions for the ends of modules' names.

    AdapterFileError for one that is none.
    """

    def alpha_of(module: str) -> float:
        found = (a for pattern, a in patterns.items() if re.match(rf"(.*\.)?({pattern})$", module))
        return next(found, default)

    try:
        return {alpha_of(MATRIX.sub("", name)) for name in names}
    except re.error as error:
        raise AdapterFileError(
            f"{path} has an alpha_pattern that is no expression: {error.pattern!r} ({error})"
        ) from error


def _from_kohya(header: Mapping[str, Any], known: Collection[str]) -> dict[str, str] | None:
    """The names in the network of a file's matrices, where all are kohya's of `known` modules."""
    found = {key: match for key in header if (match := KOHYA.match(key))}
    own = {name: name for name in known}
    own |= {other: name for name, other in ORIGINAL_SDXL.items() if name in own}
    flat = {called.replace(".", "_"): name for called, name in own.items()}
    if len(found) < len(header) or not flat.keys() >= {match[2] for match in found.values()}:
        return None
    return {k: f"{flat[m[2]]}.{KOHYAS[m[3]]}" for k, m in found.items() if m[3] in KOHYAS}


def _scalars(path: Path, header: Mapping[str, Any]) -> set[float]:
    """The alphas that a file holds as tensors, beside the matrices."""
    found = set()
    with path.open("rb") as stream:
        start = 8 + int(struct.unpack("<Q", stream.read(8))[0])
        for key, entry in header.items():
            form = SCALARS.get(entry["dtype"], "<f")
            if not key.endswith(".alpha") or entry["shape"] not in ([], [1]):
                continue
            stream.seek(start + entry["data_offsets"][0])
            data = stream.read(SIZES.get(entry["dtype"], 4))
            # bfloat16 is the last half of a float32
            data = data.rjust(struct.calcsize(form), b"\0")
            found.add(float(struct.unpack(form, data)[0]))
    return found


def _foreign(path: Path, key: str, pipeline: str | None) -> str:
    """The fault of a file that has a tensor that is no matrix of an adapter."""
    if "lora_magnitude" in key:
        whole = _whole(path, key, pipeline)
        return f"holds DoRA's magnitudes ({key}); allowed are plain adapters, or {whole}"
    if ("lora" in key and not key.endswith(".bias")) or key.endswith(".alpha"):
        return conversion(path, key, pipeline)
    return f"holds weights beside adapters ({key}), as modules_to_save does; {WHOLE}"


def conversion(path: Path, key: str, pipeline: str | None) -> str:
    """Advice on adapters under another program's names."""
    if pipeline is None:
        return f"has no PEFT names ({key}); a PeftModel's save_pretrained writes a file with them"
    if not _reads(pipeline, key):
        return (
            f"has another program's names ({key}), which diffusers converts for no {pipeline};"
            " allowed are diffusers' own, such as transformer.MODULE.lora_A.weight"
        )
    part = "unet" if pipeline in UNETS else "transformer"
    return (
        f"has another program's names ({key}); diffusers converts them:"
        # without low_cpu_mem_usage=False, matrices that were one remain one, which is not saved
        f" {_loading(path, pipeline, ', low_cpu_mem_usage=False')};"
        f" pipe.{part}.save_lora_adapter('converted', adapter_name='a'). Then"
        " type begin_from=converted"
    )


def _whole(path: Path, key: str, pipeline: str | None) -> str:
    """How a model is made of adapters that can't be gone on with, by one of their names."""
    if pipeline is None or pipeline.endswith("ModularPipeline") or not _reads(pipeline, key):
        return WHOLE
    if not key.startswith((*OF_DIFFUSERS, "lora_", "diffusion_model.")):  # of a network's own
        return WHOLE
    return (
        f"diffusers merges them: {_loading(path, pipeline)}; pipe.fuse_lora();"
        " pipe.unload_lora_weights(); pipe.save_pretrained('merged'). Then type model.path=merged"
        " in the place of begin_from"
    )


def _reads(pipeline: str, key: str) -> bool:
    """Whether a pipeline's loader in diffusers reads a file, by one of its names."""
    wrote = "kohya" if key.startswith("lora_") else "original"
    family = BY_PIPELINE.get(pipeline)  # None of a plug-in's
    return key.startswith(OF_DIFFUSERS) or family is None or wrote in family.converts


def _loading(path: Path, pipeline: str, more: str = "") -> str:
    """Python code that loads adapters into a pipeline of diffusers."""
    parts = " pipe.load_components('transformer');" if pipeline.endswith("ModularPipeline") else ""
    return (
        f"pipe = {pipeline}.from_pretrained(MODEL);{parts}"
        f" pipe.load_lora_weights({str(path)!r}, adapter_name='a'{more})"
    )


def _in_network(key: str) -> str:
    for former, name in FORMER.items():
        key = key.replace(former, name)
    key = MATRIX.sub(r".\1\2", key)
    for prefix in PREFIXES:
        # PEFT's prefix stands before the names of a language model, which may begin like others
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return key


def is_a(key: str) -> bool:
    """Whether a matrix is the first of its adapter, by its name."""
    return MATRIX.search(key)[1].endswith("A")  # type: ignore[index]
