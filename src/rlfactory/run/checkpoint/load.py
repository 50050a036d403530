"""Loads a checkpoint: weights, optimizer state, plain state; and the weights of another run."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from rlfactory.model.base import ImageModel
from rlfactory.model.pipelines.adapter_files import AdapterFile, find_adapters, read_adapters
from rlfactory.model.text_base import TextModel
from rlfactory.model.weight_sets import EMA, OLD, POLICY
from rlfactory.run.checkpoint.find import (
    OPTIMIZER_FILE,
    STATE_FILE,
    WEIGHTS_FILE,
    is_sharded,
    newest,
)
from rlfactory.run.checkpoint.optimizer_state import (
    load_local_optimizer_state,
    map_optimizer_state,
)
from rlfactory.run.checkpoint.serialization import unflatten
from rlfactory.run.folder import RunFolder, RunFolderError

log = logging.getLogger(__name__)


def load_checkpoint(folder: Path, model: ImageModel | TextModel) -> None:
    """Restore every weight set of a model; collective if the model is sharded.

    Any number of ranks reads what any other wrote, in full tensors or in shards.

    Raises:
        RunFolderError: the average of the weights is wanted, and the run kept none.
    """
    sets = {key.partition("/")[0] for key in _shapes(folder)}
    if EMA in model.weights and EMA not in sets:
        raise RunFolderError(
            f"{folder} holds no average of the weights, since nothing read it while it was saved;"
            " type --weights policy or evaluation.weights=policy"
        )
    if is_sharded(folder):
        _shards_module().load_weights(folder, model, sorted(sets))
    else:
        model.weights.load_full_state_dict(load_file(folder / WEIGHTS_FILE))


def load_optimizer(
    folder: Path,
    optimizer: torch.optim.Optimizer,
    keep_options: bool = False,
    model: ImageModel | TextModel | None = None,
) -> None:
    """Restore an optimizer's state.

    Args:
        folder: the checkpoint.
        optimizer: restored in place.
        keep_options: keep the optimizer's own learning rate, betas and so on, not the saved ones.
        model: the model that it trains; needed where that, or the checkpoint, is sharded.
    """
    plain = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))["optimizer"]
    saved_shards = is_sharded(folder)
    state = unflatten(plain, {} if saved_shards else load_file(folder / OPTIMIZER_FILE))
    if saved_shards:
        assert model is not None
        moments = _shards_module().load_moments(folder, model, optimizer)
        state["state"] = {n: {**state["state"].get(n, {}), **v} for n, v in moments.items()}
    if keep_options:
        for saved, current in zip(state["param_groups"], optimizer.param_groups, strict=True):
            # the schedule sets it anew, from the current learning rate
            saved.pop("peak_lr", None)
            saved.update({key: value for key, value in current.items() if key != "params"})
    if saved_shards or model is None or (sharding := model.weights.sharding) is None:
        optimizer.load_state_dict(state)
        return
    state["state"] = map_optimizer_state(sharding.shard, state["state"], model, optimizer)
    load_local_optimizer_state(state, model, optimizer)


def load_state(folder: Path) -> dict[str, Any]:
    """The plain `state` that a checkpoint was saved with."""
    content = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    content.pop("optimizer", None)
    return dict(unflatten(content, {}))


def load_initial_weights(run: Path, model: ImageModel | TextModel) -> None:
    """Start a new run from another one's weights: policy and critic of its newest checkpoint; or
    from LoRA adapters that diffusers or PEFT saved, a file or its folder.

    The weight sets that follow the policy start equal to it; the reference stays the pretrained
    network. RunFolderError without a checkpoint, or where it is of another model.
    """
    run = run.expanduser()
    file = None if RunFolder(run).config.is_file() else find_adapters(run)
    if file is not None:
        model.weights.load_full_state_dict(_adapter_state(read_adapters(file), model))
        _follow_policy(model)
        log.info("starting with the adapters of %s", file)
        return
    checkpoint = newest(RunFolder(run).checkpoints)
    if checkpoint is None:
        raise RunFolderError(
            f"begin_from: {run} holds no undamaged checkpoint; type rlfactory resume {run}"
        )
    shapes = {k: v for k, v in _shapes(checkpoint).items() if k.startswith(f"{POLICY}/")}
    current = model.weights.sharded_state_dict()  # a DTensor has the full shape
    expected = {k: v.shape for k, v in current.items() if k.startswith(f"{POLICY}/")}
    if shapes != expected:
        key = min(k for k in shapes.keys() | expected.keys() if shapes.get(k) != expected.get(k))
        raise RunFolderError(
            f"begin_from: {run} trained other weights: {key.removeprefix(f'{POLICY}/')} is"
            f" {_shape(shapes.get(key))} there and {_shape(expected.get(key))} here; choose the"
            " model as that run did, or type begin_from=null"
        )
    if is_sharded(checkpoint):
        _shards_module().load_weights(checkpoint, model, [POLICY])
    else:
        saved = load_file(checkpoint / WEIGHTS_FILE)
        model.weights.load_full_state_dict({key: saved[key] for key in shapes})
    _follow_policy(model)
    log.info("starting with the weights of %s", checkpoint)


def _follow_policy(model: ImageModel | TextModel) -> None:
    """Set the weight sets that follow the policy equal to it."""
    for name in (EMA, OLD):
        if name in model.weights:
            model.weights.update(name, decay=0.0)


def _adapter_state(adapters: AdapterFile, model: ImageModel | TextModel) -> dict[str, torch.Tensor]:
    """The policy with the adapters of a file; what it has beside adapters, a critic, stays.

    Raises:
        RunFolderError: the file has adapters of other layers, or of other shapes.
    """
    expected = {k: v for k, v in model.weights.full_state_dict().items() if k.startswith(POLICY)}
    saved = load_file(adapters.path)
    state = {}
    for key, values in expected.items():
        if "lora_" not in key:
            continue
        name = key.replace(".default.weight", ".weight")  # PEFT's name of the one adapter
        found = [k for k in adapters.keys if name.endswith((f".{k}", f"/{k}"))]
        tensor = saved[adapters.keys[max(found, key=len)]] if found else None
        if tensor is None or tensor.shape != values.shape:
            there = _shape(None if tensor is None else tensor.shape)
            raise RunFolderError(
                f"begin_from: {adapters.path} has other adapters: {name.removeprefix(f'{POLICY}/')}"
                f" is {there} there and {_shape(values.shape)} here; choose model and"
                " model.lora_targets as it was trained, or type begin_from=null"
            )
        state[key] = tensor.to(values.dtype)
    if len(state) != len(adapters.keys):
        raise RunFolderError(
            f"begin_from: {adapters.path} adapts {len(adapters.keys) // 2} layers, and here"
            f" {len(state) // 2} are; choose model.lora_targets as it was trained"
        )
    return {**expected, **state}


def _shards_module() -> ModuleType:
    """The module for sharded checkpoints; its imports take a second that most runs do without."""
    from rlfactory.run.checkpoint import sharded

    return sharded


def _shapes(checkpoint: Path) -> Mapping[str, torch.Size]:
    """The shapes of all tensors of a checkpoint's weight sets, from the headers of its files."""
    if is_sharded(checkpoint):
        shapes: Mapping[str, torch.Size] = _shards_module().saved_shapes(checkpoint)
        return shapes
    with safe_open(checkpoint / WEIGHTS_FILE, "pt") as file:
        return {key: torch.Size(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "x".join(map(str, shape)) or "one number"
