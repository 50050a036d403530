"""A run's weights on disk: every weight set to go on from, and an export that diffusers opens."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from rlfactory.model.base import ImageModel
from rlfactory.model.text import TextModel

WEIGHTS_FILE, STATE_FILE = "weights.safetensors", "state.json"


def save_checkpoint(
    folder: Path, model: ImageModel | TextModel, exported: str, state: Mapping[str, Any]
) -> None:
    """Write `folder` whole or not at all; the export holds the weight set of that name.

    `state` is what else has moved since the configuration: counts, controllers.
    """
    partial = folder.with_name(f".{folder.name}")
    partial.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.cpu().contiguous() for k, v in model.weights.state_dict().items()}
    save_file(tensors, partial / WEIGHTS_FILE)
    (partial / STATE_FILE).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    with model.weights(exported):
        model.export(partial)
    os.replace(partial, folder)


def load_checkpoint(folder: Path, model: ImageModel | TextModel) -> None:
    """Restore every weight set."""
    model.weights.load_state_dict(load_file(folder / WEIGHTS_FILE))


def checkpoint_bytes(model: ImageModel | TextModel) -> int:
    """About how much a checkpoint takes: each weight set, and the export once more."""
    tensors = model.weights.state_dict()
    sets = {key.split("/", 1)[0] for key in tensors}
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    return size + size // len(sets)


def checkpoint_of(checkpoints: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return checkpoints / f"step_{step:06d}"


def newest(checkpoints: Path) -> Path | None:
    """The last complete checkpoint of a run, if there is any."""
    found = sorted(checkpoints.glob("step_*"))
    return found[-1] if found else None
