"""A run's weights on disk: every weight set to go on from, and an export that diffusers opens."""

import os
from pathlib import Path

from safetensors.torch import load_file, save_file

from rlfactory.model.base import ImageModel

WEIGHTS_FILE = "weights.safetensors"


def save_checkpoint(folder: Path, model: ImageModel, exported: str) -> None:
    """Write `folder` whole or not at all; the export holds the weight set of that name."""
    partial = folder.with_name(folder.name + ".partial")
    partial.mkdir(parents=True)
    state = {k: v.cpu().contiguous() for k, v in model.weights.state_dict().items()}
    save_file(state, partial / WEIGHTS_FILE)
    with model.weights(exported):
        model.export(partial)
    os.replace(partial, folder)


def load_checkpoint(folder: Path, model: ImageModel) -> None:
    """Restore every weight set."""
    model.weights.load_state_dict(load_file(folder / WEIGHTS_FILE))


def newest(checkpoints: Path) -> Path | None:
    """The last complete checkpoint of a run, if there is any."""
    found = sorted(p for p in checkpoints.glob("step_*") if not p.name.endswith(".partial"))
    return found[-1] if found else None
