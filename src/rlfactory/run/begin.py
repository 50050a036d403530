"""A fresh run that begins with what another one learned."""

import logging
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from rlfactory.model.base import ImageModel
from rlfactory.model.text import TextModel
from rlfactory.model.weights import EMA, OLD, POLICY
from rlfactory.run.checkpoint import WEIGHTS_FILE, newest
from rlfactory.run.folder import RunFolder, RunFolderError

log = logging.getLogger(__name__)


def begin_with(run: Path, model: ImageModel | TextModel) -> None:
    """Put the policy, and the critic, of a run's newest sound checkpoint into a model.

    The sets that follow the policy begin equal to it; the reference stays the pretrained network.
    """
    run = run.expanduser()
    checkpoint = newest(RunFolder(run).checkpoints)
    if checkpoint is None:
        raise RunFolderError(
            f"begin_from: {run} holds no sound checkpoint; type rlfactory resume {run}"
        )
    saved = load_file(checkpoint / WEIGHTS_FILE)
    state = {key: value for key, value in saved.items() if key.startswith(f"{POLICY}/")}
    there = {key: value.shape for key, value in state.items()}
    wanted = {key: value.shape for key, value in _policy(model).items()}
    if there != wanted:
        key = min(k for k in there.keys() | wanted.keys() if there.get(k) != wanted.get(k))
        raise RunFolderError(
            f"begin_from: {run} trained other weights: {key.removeprefix(f'{POLICY}/')} is"
            f" {_size(there.get(key))} there and {_size(wanted.get(key))} here; choose the model as"
            " that run did, or type begin_from=null"
        )
    model.weights.load_whole(state)
    for name in (EMA, OLD):
        if name in model.weights:
            model.weights.update(name, decay=0.0)
    log.info("beginning with the weights of %s", checkpoint)


def _policy(model: ImageModel | TextModel) -> Mapping[str, Tensor]:
    """A model's own, as they would be saved."""
    weights = model.weights
    state = weights.state_dict() if weights.division is None else weights.whole_state()
    return {key: value for key, value in state.items() if key.startswith(f"{POLICY}/")}


def _size(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "x".join(map(str, shape)) or "one number"
