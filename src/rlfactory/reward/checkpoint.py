"""A published file of weights: found, and read without running anything that is in it."""

from pathlib import Path
from pickle import UnpicklingError

import torch
from huggingface_hub import errors, hf_hub_download
from safetensors.torch import load_file
from torch import Tensor

from rlfactory.reward.base import RewardError

# that of whichever library huggingface_hub asks by
HTTPError = errors.HTTPError  # type: ignore[attr-defined]


def checkpoint_file(path: str, name: str) -> Path:
    """The file itself, the file `name` in a folder, or that of a hub id, fetched where it must be.

    RewardError where there is none.
    """
    place = Path(path).expanduser()
    if place.is_file():
        return place
    if (place / name).is_file():
        return place / name
    if place.is_dir():
        raise RewardError(f"reward.path={path} holds no {name}")
    if path.startswith(("~", ".", "/")) or path.count("/") != 1:
        raise RewardError(f"reward.path={path}: there is no such file or folder")
    try:
        return Path(hf_hub_download(path, name))
    except (HTTPError, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RewardError(
            f"reward.path={path}: {name} can't be had of the hub ({reason}). Where there is a"
            f" network, `hf download {path} {name}` fetches it; or reward.path=FOLDER names one"
            " that holds it"
        ) from error


def read_weights(file: Path) -> dict[str, Tensor]:
    """Tensors by name, on the CPU; RewardError where a file holds anything else."""
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        held = torch.load(file, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise RewardError(
            f"{file} holds more than tensors, and nothing else in a pickle is run"
        ) from error
    except Exception as error:  # a torn file can end an unpickler in any way
        raise RewardError(f"{file} can't be read: {error}") from error
    if not isinstance(held, dict) or not all(isinstance(v, Tensor) for v in held.values()):
        raise RewardError(f"{file} is no mapping of names to tensors")
    return dict(held)
