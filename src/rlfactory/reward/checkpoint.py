"""One file of published weights: tensors by name, whatever the file's form, and never code."""

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from rlfactory.model.hub import unreachable
from rlfactory.reward.base import RewardError

Shapes = Mapping[str, torch.Size]


def read_weights(path: str, *, key: str) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU; those below `state_dict` where there is such an entry.

    `path` is a `.safetensors`, or a `.pt` or `.pth` that holds tensors alone: a local file, or
    `OWNER/NAME/FILE` of the hub. RewardError, which names `key`, where there is none.
    """
    file = weights_file(path, key=key)
    found = _read(file, path, key)
    weights = found.get("state_dict", found) if isinstance(found, Mapping) else {}
    if not weights or not all(isinstance(value, Tensor) for value in weights.values()):
        raise RewardError(f"{key}={path} holds no tensors by name: it is no state dict")
    return dict(weights)


def weights_file(path: str, *, key: str) -> Path:
    """Where a file lies on this machine, fetched from the hub where it must be."""
    file = Path(path).expanduser()
    if file.is_file():
        return file
    owner, _, rest = path.partition("/")
    name, _, wanted = rest.partition("/")
    if file.is_dir() or path.startswith(("~", ".", "/")) or not (owner and name and wanted):
        fault = "is a folder" if file.is_dir() else "there is no such file"
        raise RewardError(
            f"{key}={path}: {fault}; type {key}=FILE, or {key}=OWNER/NAME/FILE for one of the hub"
        )
    # asked once: a download would ask six times, and wait in between
    why = unreachable(f"{owner}/{name}")
    try:
        return Path(hf_hub_download(f"{owner}/{name}", wanted, local_files_only=why is not None))
    except (HTTPError, OSError, ValueError) as error:
        told = why or error
        reason = (str(told).splitlines() or [type(told).__name__])[0].rstrip(".")
        raise RewardError(
            f"{key}={path} is no file here, and can't be fetched from the hub: {reason}. Where"
            f" there is a network, `hf download {owner}/{name} {wanted}` fetches it; or {key}=FILE"
            " names one that you have"
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
            f"{key}={path} is a pickle that holds more than tensors, and is refused: to load it"
            f" could run any code ({_reason(error.__context__ or error)}). Where you trust it, save"
            " its tensors alone with safetensors.torch.save_file, and name that file"
        ) from error


def _reason(error: BaseException) -> str:
    """The first sentence of what a library says, which goes on with advice to take the risk."""
    first = (str(error).splitlines() or [""])[0] or type(error).__name__
    return first.partition(" by default. ")[0].partition(". ")[0].rstrip(".")


def require_shapes(
    weights: Mapping[str, Tensor], wanted: Shapes, *, path: str, key: str, what: str
) -> None:
    """RewardError unless a state dict has exactly the names and shapes that `what` has."""
    found = {name: tensor.shape for name, tensor in weights.items()}
    faults = [f"it lacks {name}" for name in wanted if name not in found]
    faults += [f"it has {name} besides" for name in found if name not in wanted]
    faults += [
        f"its {name} is {[*found[name]]} in place of {[*shape]}"
        for name, shape in wanted.items()
        if name in found and found[name] != shape
    ]
    if faults:
        more = f", and {len(faults) - 1} more such faults" if len(faults) > 1 else ""
        raise RewardError(
            f"{key}={path} is no {what}: {faults[0]}{more}; type {key}=FILE for one that is"
        )
