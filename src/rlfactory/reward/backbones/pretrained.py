"""Pretrained weights of reward models: from the hub, a folder or a single file."""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal, TypeVar

import torch
from huggingface_hub import hf_hub_download
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedConfig
from transformers.utils import logging as transformers_log

from rlfactory.model.pipelines.hub_models import (
    HTTPError,
    explained,
    first_line,
    no_bars,
    unreachable,
)
from rlfactory.model.pipelines.local_models import resolve
from rlfactory.reward.base import RewardError
from rlfactory.utils.errors import ModelError

Network = TypeVar("Network")
Precision = Literal["auto", "float32", "float16", "bfloat16"]
"""The dtype of a reward's network; "auto": bfloat16 on CUDA, float32 elsewhere."""


def network_dtype(name: Precision, device: torch.device) -> torch.dtype:
    """The dtype of a network on `device`."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return getattr(torch, name)


@contextmanager
def loading(key: str, path: str, kind: str) -> Iterator[Callable[[str], str]]:
    """Turn errors of loading a `kind` (with its article) into a RewardError that names the key, and
    hide progress bars.

    Yields a function from a hub id or folder to what `from_pretrained` takes, as `explained` has
    it.
    """
    level = transformers_log.get_verbosity()
    transformers_log.set_verbosity_error()
    try:
        with no_bars(), explained(path, kind, key=key) as locate:
            yield locate
    except ModelError as error:
        raise RewardError(str(error)) from error
    finally:
        transformers_log.set_verbosity(level)


def load_full_model(
    kind: Any, source: str, dtype: torch.dtype, *, without: str | None = None
) -> Any:
    """A frozen model of a class, or `Auto` class, in evaluation mode, with all its weights.

    ValueError where weights are missing, but for those of the part `without`, or it is a model of
    another class.
    """
    config = getattr(kind, "config_class", None)
    model_type = PreTrainedConfig.get_config_dict(source)[0].get("model_type") if config else None
    if config and model_type != config.model_type:
        raise ValueError(f"it is a {model_type}")
    model, info = kind.from_pretrained(source, dtype=dtype, output_loading_info=True)
    # transformers fills in random weights, such as those of a missing head
    missing = sorted(map(str, {*info["missing_keys"], *info["mismatched_keys"]}))
    missing = [name for name in missing if without is None or without not in name]
    if missing:
        raise ValueError(f"it has no weights for {', '.join(missing[:4])}")
    return model.eval().requires_grad_(False)


def load_full_tokenizer(source: str) -> Any:
    """The tokenizer in a folder or hub id; ValueError where it has no vocabulary."""
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    # transformers returns one with special tokens alone where a folder has no vocabulary
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ValueError("its tokenizer is missing")
    return tokenizer


def load_with_tokenizer(
    kind: Any,
    path: str,
    dtype: torch.dtype,
    *,
    what: str,
    key: str = "reward.path",
    check: Callable[[Any, Any], None] = lambda model, tokenizer: None,
    without: str | None = None,
) -> tuple[Any, Any]:
    """A full model of an `Auto` class, as `load_full_model` has it, and its tokenizer; RewardError
    where there is none at `path`, or it does not pass `check`.
    """
    with loading(key, path, what) as locate:
        source = locate(resolve(path, "config.json"))
        model = load_full_model(kind, source, dtype, without=without)
        tokenizer = load_full_tokenizer(source)
        check(model, tokenizer)
    return model, tokenizer


def max_positions(model: Any, tokenizer: Any) -> int:
    """The context length of a model in tokens, as far as it or its tokenizer states it."""
    limit: int = tokenizer.model_max_length
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return min(limit, positions) if positions and positions > 0 else limit  # XLNet's are -1


def renamed(name: str, table: Sequence[tuple[str, str]]) -> str:
    """A tensor's name after the substitutions of a table, applied in order."""
    for pattern, replacement in table:
        name = re.sub(pattern, replacement, name)
    return name


def read_weights(path: str, *, key: str) -> dict[str, Tensor]:
    """The tensors of a file by name, on the CPU; those under `state_dict` if it has that entry.

    `path` is a `.safetensors`, or a `.pt` or `.pth` of tensors alone: a local file, or
    `OWNER/NAME/FILE` of the hub. RewardError where it holds anything else, or can't be read.
    """
    file = weights_file(path, key=key)
    content = _read(file, path, key)
    weights = content.get("state_dict", content) if isinstance(content, Mapping) else {}
    if not weights or not all(isinstance(value, Tensor) for value in weights.values()):
        raise RewardError(f"{key}={path} holds no tensors by name: it is not a state dict")
    return dict(weights)


def load_published(
    path: str, what: str, build: Callable[[dict[str, Tensor]], Network], *, key: str = "reward.path"
) -> Network:
    """The network that `build` makes of the weights in a file; RewardError where it can't."""
    weights = read_weights(path, key=key)
    try:
        return build(weights)
    except (RuntimeError, KeyError, ValueError) as error:
        raise RewardError(
            f"{key}={path} is no {what}: {error}; type {key}=FILE for one that is"
        ) from error


def weights_file(path: str, *, key: str) -> Path:
    """The local path of a file, downloaded from the hub if needed; RewardError if it can't be."""
    file = Path(path).expanduser()
    if file.is_file():
        return file
    owner, _, rest = path.partition("/")
    name, _, filename = rest.partition("/")
    if file.is_dir() or path.startswith(("~", ".", "/")) or not (owner and name and filename):
        fault = "is a folder" if file.is_dir() else "there is no such file"
        raise RewardError(
            f"{key}={path}: {fault}; type {key}=FILE, or {key}=OWNER/NAME/FILE for one of the hub"
        )
    # one quick check first: a download would try six times, with pauses
    why = unreachable(f"{owner}/{name}")
    try:
        return Path(hf_hub_download(f"{owner}/{name}", filename, local_files_only=why is not None))
    except (HTTPError, OSError, ValueError) as error:
        reason = first_line(why or error)
        raise RewardError(
            f"{key}={path} is no local file, and can't be downloaded from the hub: {reason}."
            f" Where there is a network, `hf download {owner}/{name} {filename}` fetches it; or"
            f" type {key}=FILE for one that you have"
        ) from error


def _read(file: Path, path: str, key: str) -> Any:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        return torch.load(file, map_location="cpu", weights_only=True)
    except (EOFError, LookupError, OSError, RuntimeError, SafetensorError, ValueError) as error:
        raise RewardError(f"{key}={path} can't be read as weights: {_reason(error)}") from error
    except UnpicklingError as error:
        raise RewardError(
            f"{key}={path} is a pickle that holds more than tensors, and is refused: loading it"
            f" could run any code ({_reason(error.__context__ or error)}). Where you trust it, save"
            " its tensors alone with safetensors.torch.save_file, and name that file"
        ) from error


def _reason(error: BaseException) -> str:
    """The first sentence of a library's message: the others advise to allow arbitrary code."""
    return first_line(error).partition(" by default. ")[0].partition(". ")[0]


def require_shapes(
    weights: Mapping[str, Tensor], network: nn.Module, *, path: str, key: str, what: str
) -> None:
    """RewardError, with the first fault, unless names and shapes are those of a network."""
    expected = {name: tensor.shape for name, tensor in network.state_dict().items()}
    actual = {name: tensor.shape for name, tensor in weights.items()}
    faults = [f"it lacks {name}" for name in expected if name not in actual]
    faults += [f"it has {name} besides" for name in actual if name not in expected]
    faults += [
        f"its {name} is {[*actual[name]]} in place of {[*shape]}"
        for name, shape in expected.items()
        if name in actual and actual[name] != shape
    ]
    if faults:
        more = f", and {len(faults) - 1} more such faults" if len(faults) > 1 else ""
        raise RewardError(
            f"{key}={path} is no {what}: {faults[0]}{more}; type {key}=FILE for one that is"
        )


INNER = (1024, 128, 64, 16, 1)
"""Widths of the heads that rate images in published files."""
# positions in the published nn.Sequential; those between are dropouts, left out for inference
_NAMES = ("0", "2", "4", "6", "7")


def rating_layers(width: int) -> nn.Sequential:
    """Embeddings `[B, width]` to ratings `[B, 1]`; layers are named as in the published files."""
    sizes = zip(_NAMES, pairwise((width, *INNER)), strict=True)
    return nn.Sequential(OrderedDict((name, nn.Linear(*size)) for name, size in sizes))
