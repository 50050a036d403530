"""A model by its folder or hub id: the option of its kind, its name in plans and runs; and what
follows from the weights that a run begins from.
"""

import os
import re
import struct
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlfactory.config._hydra import CompositionError, parse
from rlfactory.config.frozen import try_frozen
from rlfactory.config.live import SMALL
from rlfactory.config.memory.model_parts import (
    LLAMA_LIKE,
    NETWORKS,
    parts_of,
    published_pipeline,
    shapes,
)
from rlfactory.config.options import options
from rlfactory.config.problems import PlanError, Problem, override_key
from rlfactory.config.schema.signature import trait
from rlfactory.config.words import typed_value
from rlfactory.model.lm.trainable import GGUF, language_fault
from rlfactory.model.pipelines.adapter_files import (
    AdapterFileError,
    ending,
    find_adapters,
    in_files,
    read_adapters,
)
from rlfactory.model.pipelines.families import (
    BY_PIPELINE,
    BY_TARGET,
    FAMILIES,
    NO_FAMILY,
    family_of,
)
from rlfactory.model.pipelines.local_models import (
    LANGUAGE_OPTION,
    MODEL_INDEX,
    OPTIONS,
    ZOO_PREFIX,
    folder_of,
    hub_cache,
    is_offline,
    pipeline_of,
    read_json,
    snapshot,
)
from rlfactory.utils.live_objects import is_reference

KINDS: Mapping[str, str | None] = {
    "qwen-image-edit": None,  # the first version, which is not trained here
    "stable-diffusion": "sd15",  # the first versions, of which sd14 is the family's option
    **{part: family.option for family in FAMILIES for part in family.ids},
}
"""Parts of the ids of image models, and an option of their kind."""


def kind_of_id(path: str, default: str | None = None) -> str | None:
    """The option of the longest part in `KINDS` that a hub id has; `default` where it has none."""
    found = [part for part in KINDS if part in path.lower()]
    return KINDS[max(found, key=len)] if found else default


def with_options(words: Sequence[str], places: Sequence[str]) -> list[str]:
    """The words of a command with `model=PATH` as the option of its kind, and `model.path=PATH`.

    A typed `model.path` wins.

    Raises:
        PlanError: a folder or file holds no model that can be trained.
    """
    known, rewritten = options("model", places), list[str]()
    for word in words:
        path = _value_of(word) if word.startswith("model=") else ""
        if not path or path in known or not _is_path(path):
            rewritten.append(word)
            continue
        rewritten.append(f"model={_kind(path)}")
        if all(override_key(other) != "model.path" for other in words):
            rewritten.append(f"model.path={typed_value(path)}")
    return rewritten


def _value_of(word: str) -> str:
    """The value of an override; empty for several, and for what is reported where it is read."""
    with suppress(*CompositionError):
        (override,) = parse([word])
        return "" if override.is_sweep_override() else str(override.value() or "")
    return ""


def _is_path(value: str) -> bool:
    is_marked = value.startswith((".", "~", ZOO_PREFIX)) or "/" in value or value.endswith(GGUF)
    return is_marked or os.path.exists(value)


def _kind(path: str) -> str:
    """The option for a path; PlanError where it has none, or only the hub can say its kind."""
    found = option_of(path)
    is_guess = found == LANGUAGE_OPTION and folder_of(path) is None and kind_of_id(path) is None
    if is_guess and is_hub_id(path) and (fault := offline_fault(path)):
        raise PlanError([Problem("model", f"{path} {fault}")])
    if found is not None:
        return found
    folder = folder_of(path) or Path(path).expanduser()
    if (pipeline := pipeline_of(folder)) is not None:
        reason = NO_FAMILY.get(pipeline, f"known are {', '.join(OPTIONS)}")
        raise PlanError([Problem("model", f"{path} is a {pipeline}: {reason}")])
    message, instead = language_fault(folder) or ("is no model", None)
    raise PlanError([Problem("model", f"{path} {message}", instead=instead)])


def option_of(path: str) -> str | None:
    """The option of `model` for a hub id or a folder; None where its kind is not known."""
    for name, file in options("model").items():
        if re.search(rf"^  path: {re.escape(path)}( |$)", file.read_text("utf-8"), re.MULTILINE):
            return name
    pipeline = published_pipeline(path)
    folder = folder_of(path) if pipeline is None else None
    if folder is not None:
        pipeline = pipeline_of(folder)
    if pipeline in BY_PIPELINE:
        parts = parts_of(path) or {}
        family = family_of(pipeline, parts)
        largest = max((part.parameters for part in parts.values()), default=SMALL)
        return family.small if family.small and largest < SMALL else family.option
    if (found := of_class(path, folder)) is not None:
        return found
    if folder is not None or not is_hub_id(path):
        is_one = pipeline is None and not language_fault(folder or Path(path).expanduser())
        return LANGUAGE_OPTION if is_one else None
    return kind_of_id(path, LANGUAGE_OPTION)


def of_class(path: str, folder: Path | None) -> str | None:
    """The option whose adapter says that it is for models of this type, or with such an id."""
    kind = read_json(folder / MODEL_INDEX).get("model_type") if folder else None
    for name, file in options("model").items():
        target = re.search(r"^  _target_: (\S+)", file.read_text("utf-8"), re.MULTILINE)
        if target is None or target[1] in BY_TARGET:  # an image model, which has an index
            continue
        node = {"_target_": target[1]}
        is_named = folder is None and any(i in path.lower() for i in trait(node, "ids", ()))
        if is_named or (kind and kind in trait(node, "model_types", ())):
            return name
    return None


def is_hub_id(path: str) -> bool:
    """Whether a path that is no folder has the form OWNER/NAME."""
    is_local = path.startswith(("/", ".", "~", ZOO_PREFIX)) or path.endswith(GGUF)
    return not is_local and path.count("/") == 1


def offline_fault(repo: str) -> str | None:
    """Why a repository of the hub can't be had: it is not here, and none is asked for."""
    if not is_offline() or snapshot(repo) is not None:
        return None
    return (
        f"is not in {hub_cache()}, and HF_HUB_OFFLINE is set; unset it, fetch it where there is a"
        f" network (`hf download {repo}`, behind `hf auth login` where its terms ask for a login),"
        " or name a folder"
    )


def shown_model(option: str, path: object, default: object) -> str:
    """The name of the model that is trained: its option's, or the last part of another path.

    Args:
        path: `model.path`, and `default` that of the option.
    """
    if not isinstance(path, str) or path == default or is_reference(path):
        return option
    parts = Path(os.path.abspath(Path(path.removeprefix(ZOO_PREFIX)).expanduser())).parts
    if len(parts) > 2 and parts[-2] == "snapshots":  # the hub's cache: models--OWNER--NAME
        parts = (parts[-3].rpartition("--")[2],)
    return re.sub(r"[^\w.+-]+", "_", parts[-1].removesuffix(GGUF)) or option


LANGUAGE_MODELS = LLAMA_LIKE | {"gpt2", "qwen3"}
"""Types of language models whose modules are named as in their files."""
LORA_KEYS = ("finetune", "lora_rank", "lora_alpha", "lora_targets")
SECOND = "transformer_2"
"""The component of low noise, in a pipeline of two networks; and how its adapters' names begin."""


def begun_keys(given: str, path: object) -> dict[str, Any]:
    """The keys of `model`, at `path`, that weights to begin from decide, where they can be read."""
    if (former := model_of(Path(given).expanduser())) is not None:
        keys = LORA_KEYS if former.get("finetune") == "lora" else LORA_KEYS[:1]
        return {key: former[key] for key in (*keys, "trained") if key in former}
    if (file := find_adapters(Path(given).expanduser())) is None:
        return {}
    known = matrices(path)
    try:
        adapters = read_adapters(file, known=known)
    except AdapterFileError:
        return {}
    if known and not known.keys() >= {in_files(name, known) for name in adapters.modules}:
        return {}  # they are of another model
    values = "lora", adapters.rank, adapters.alpha, adapters.targets(known)
    found = dict(zip(LORA_KEYS, values, strict=True))
    low = [name.startswith(f"{SECOND}.") for name in adapters.modules]
    # names of one network without its own say not which of the two it is
    return found | ({"trained": "low" if all(low) else "both"} if any(low) else {})


def model_of(run: Path) -> Mapping[str, Any] | None:
    """The `model` node of a run's configuration; None if it is no run folder."""
    model = (try_frozen(run / "config.yaml") or {}).get("model")
    return model if isinstance(model, Mapping) else None


def begun_as(run: Path) -> object:
    """The use that a run made of the weights that it began from, as its `begin_as` says."""
    return (try_frozen(run / "config.yaml") or {}).get("begin_as")


def matrices(path: object) -> dict[str, list[int]]:
    """The modules with matrices of a network on this machine, as far as known, and their shapes."""
    if (folder := folder_of(path)) is None:
        return {}
    network = next((folder / name for name in NETWORKS if (folder / name).is_dir()), folder)
    is_text = network == folder
    if is_text and read_json(folder / MODEL_INDEX).get("model_type") not in LANGUAGE_MODELS:
        return {}
    try:
        found = [item for file in network.glob("*.safetensors") for item in shapes(file).items()]
    except (OSError, ValueError, struct.error):
        return {}
    return {name.rpartition(".")[0]: shape for name, shape in sorted(found) if len(shape) > 1}


OUTPUT, EMBEDDINGS = "lm_head", ("wte", "transformer.wte", "model.embed_tokens", "embed_tokens")
"""Names of a language model's output projection, which files of tied weights lack, and of its
embedding.
"""


def tied_modules(path: object, modules: Collection[str]) -> list[str]:
    """The output projection and the embedding of a language model, if they are one matrix."""
    folder = folder_of(path)
    config = read_json(folder / MODEL_INDEX) if folder else {}
    embedding = [name for name in modules if ending(name) in EMBEDDINGS]
    default = OUTPUT not in modules or config.get("model_type") == "gpt2"
    if not config.get("tie_word_embeddings", default) or not embedding:
        return []
    return [OUTPUT, *embedding]
