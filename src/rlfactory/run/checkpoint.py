"""A run on disk: what is needed to go on exactly, and an export that other libraries open.

A checkpoint is written beside its place, its manifest last, and renamed when all of it is on the
disk. What has no manifest, or isn't what its manifest says, is no checkpoint.
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlfactory.fault import fault
from rlfactory.model.base import ImageModel
from rlfactory.model.text import TextModel
from rlfactory.run.atomic import flush
from rlfactory.run.divided import mapped, moments_of, standing
from rlfactory.run.manifest import DamagedError, verify, versions, write_manifest
from rlfactory.run.tensors import pack, unpack

WEIGHTS_FILE, OPTIMIZER_FILE = "weights.safetensors", "optimizer.safetensors"
STATE_FILE = "state.json"
WORLD_SIZE = 1

log = logging.getLogger(__name__)


def _at_once(write: Callable[[], None]) -> None:
    write()


def save_checkpoint(
    folder: Path,
    model: ImageModel | TextModel,
    exported: str,
    state: Mapping[str, Any],
    optimizer: torch.optim.Optimizer | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write `folder` whole or not at all; the export holds the weight set of that name.

    `state` is what else has moved since the configuration, in plain values: counts, controllers;
    `about` goes into the manifest.
    """
    begin_checkpoint(folder, model, exported, state, optimizer, about)()


def begin_checkpoint(
    folder: Path,
    model: ImageModel | TextModel,
    exported: str,
    state: Mapping[str, Any],
    optimizer: torch.optim.Optimizer | None = None,
    about: Mapping[str, Any] | None = None,
    write: Callable[[Callable[[], None]], None] = _at_once,
) -> Callable[[], None]:
    """The part of saving that needs the model to stand still; what it returns does the rest, in any
    thread, of copies on the CPU. `write` does what writes; it may do it again.
    """
    weights = model.weights.whole_state()
    moments, tensors = pack(moments_of(model, optimizer) if optimizer is not None else None)
    plain, _ = pack(state)
    if optimizer is not None:
        plain["optimizer"] = moments
    unfinished = folder.with_name(f".{folder.name}")
    with _whole(unfinished), standing(model, exported, weights):
        write(partial(_export, model, unfinished))
    noted = {"world_size": WORLD_SIZE, "versions": versions(), **(about or {})}
    rest = partial(_finish, unfinished, folder, weights, tensors, plain, noted)

    def finish() -> None:
        with _whole(unfinished):
            write(rest)
            write(partial(flush, folder.parent))

    return finish


def _export(model: ImageModel | TextModel, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.export(folder)


def _finish(
    unfinished: Path,
    folder: Path,
    weights: Mapping[str, Tensor],
    moments: Mapping[str, Tensor],
    state: Mapping[str, Any],
    about: Mapping[str, Any],
) -> None:
    save_file({k: v.contiguous() for k, v in weights.items()}, unfinished / WEIGHTS_FILE)
    save_file(dict(moments), unfinished / OPTIMIZER_FILE)
    text = json.dumps(state, indent=1, allow_nan=False)
    (unfinished / STATE_FILE).write_text(text + "\n", encoding="utf-8")
    fault("saving")
    write_manifest(unfinished, about)
    fault("renaming")
    os.replace(unfinished, folder)


@contextmanager
def _whole(folder: Path) -> Iterator[None]:
    """Leaves no part of a folder where its making fails."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def load_checkpoint(folder: Path, model: ImageModel | TextModel) -> None:
    """Restore every weight set."""
    model.weights.load_whole(load_file(folder / WEIGHTS_FILE))


def load_optimizer(
    folder: Path,
    optimizer: torch.optim.Optimizer,
    keep_options: bool = False,
    model: ImageModel | TextModel | None = None,
) -> None:
    """Restore the optimiser's moments, and its options unless those it has are to be kept. Of a
    `model` whose network is divided, it moves a part.
    """
    packed = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))["optimizer"]
    state = unpack(packed, load_file(folder / OPTIMIZER_FILE))
    if keep_options:
        for saved, made in zip(state["param_groups"], optimizer.param_groups, strict=True):
            saved.pop("peak_lr", None)
            saved.update({key: value for key, value in made.items() if key != "params"})
    if model is not None and (division := model.weights.division) is not None:
        state["state"] = mapped(division.part_moment, state["state"], model, optimizer)
    optimizer.load_state_dict(state)


def load_state(folder: Path) -> dict[str, Any]:
    """The `state` that a checkpoint was saved with."""
    content = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    content.pop("optimizer", None)
    return dict(unpack(content, {}))


def checkpoint_bytes(
    model: ImageModel | TextModel, optimizer: torch.optim.Optimizer | None = None
) -> int:
    """About how much a checkpoint takes: each weight set, the export once more, the moments."""
    tensors = model.weights.state_dict()
    sets = {key.split("/", 1)[0] for key in tensors}
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    moments = [] if optimizer is None else [v for s in optimizer.state.values() for v in s.values()]
    kept = sum(v.numel() * v.element_size() for v in moments if isinstance(v, Tensor))
    division = model.weights.division
    holders, parts = (1, 1) if division is None else (division.holders, division.processes)
    return holders * (size + size // len(sets)) + parts * kept


def checkpoint_of(checkpoints: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return checkpoints / f"step_{step:06d}"


def found_in(checkpoints: Path) -> dict[int, Path]:
    """All that bear the name of a checkpoint, by their step."""
    names = ((re.fullmatch(r"step_(\d+)", p.name), p) for p in checkpoints.glob("step_*"))
    return {int(match[1]): path for match, path in names if match}


def newest(checkpoints: Path, tell: Callable[[str], None] | None = None) -> Path | None:
    """The last checkpoint of a run that is what its manifest says, if there is any.

    Where there is someone to `tell`, each damaged one is put aside, so that it is never used again,
    and named to them; else it is passed over and named in the log.
    """
    for _, folder in sorted(found_in(checkpoints).items(), reverse=True):
        try:
            verify(folder)
        except (DamagedError, OSError) as error:
            place = "" if tell is None else f"; it is kept as {put_aside(folder).name}"
            said = f"checkpoint {folder.name} is damaged: {error}{place}; the one before is used"
            log.warning(said)
            if tell is not None:
                tell(said)
        else:
            return folder
    return None


def put_aside(folder: Path) -> Path:
    """Rename a damaged checkpoint, so that nothing takes it for one."""
    names = (f"damaged_{folder.name}{f'_{n}' if n else ''}" for n in range(10**6))
    place = next(p for name in names if not (p := folder.with_name(name)).exists())
    folder.rename(place)
    return place


def sweep(checkpoints: Path) -> None:
    """Remove what was never finished; for the owner of a run alone."""
    for folder in checkpoints.glob(".step_*"):
        shutil.rmtree(folder, ignore_errors=True)
