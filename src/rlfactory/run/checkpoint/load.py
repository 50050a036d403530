"""Loads a checkpoint: weights, optimizer state, plain state; and the weights of another run."""

import logging
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.model.base import Model
from rlfactory.model.pipelines.adapter_files import (
    MATRIX,
    AdapterFile,
    find_adapters,
    read_adapters,
)
from rlfactory.model.weight_sets import EMA, OLD, POLICY, REFERENCE
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
    require_groups,
    require_moments,
)
from rlfactory.run.checkpoint.serialization import (
    Form,
    form_of,
    read_forms,
    read_tensors,
    unflatten,
)
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.utils.data_files import FileError, read_json

log = logging.getLogger(__name__)

OTHER = (
    "choose the model as it was trained (model.finetune, model.lora_rank, algo), or begin a new run"
    " with begin_from=RUN"
)
CRITIC = f"{POLICY}/critic."
"""The beginning of the names of a critic's tensors."""
REMOVE = "remove that checkpoint, to use the one before"
STATE_ERRORS = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError)


def load_checkpoint(folder: Path, model: Model) -> None:
    """Restore every weight set of a model; collective if the model is sharded.

    Any number of ranks reads what any other wrote, in full tensors or in shards.

    Raises:
        RunFolderError: the average of the weights is wanted, and the run kept none; or the
            checkpoint lacks the policy, or a set has other tensors than the model.
    """
    saved = _forms(folder)
    sets = {key.partition("/")[0] for key in saved}
    if EMA in model.weights and EMA not in sets:
        raise RunFolderError(
            f"{folder} holds no average of the weights, since nothing read it while it was saved;"
            " type --weights policy or evaluation.weights=policy"
        )
    if unknown := sorted(sets - {POLICY, REFERENCE, OLD, EMA}):
        raise RunFolderError(f"{folder}: the weights have a set {ascii(unknown[0])}; {OTHER}")
    for name in sorted({POLICY, *sets}):
        if difference := _difference(saved, model, name):
            raise RunFolderError(f"{folder} has other weights: {name}/{difference}; {OTHER}")
    _load_sets(folder, model, sorted(sets))


def _load_sets(checkpoint: Path, model: Model, names: list[str]) -> None:
    """Restore these weight sets, whose forms are those of the model's."""
    if is_sharded(checkpoint):
        # imported here: it takes a second that most runs need not wait
        from rlfactory.run.checkpoint.sharded import load_weights

        load_weights(checkpoint, model, names)
        return
    saved = read_tensors(checkpoint / WEIGHTS_FILE)
    wanted = {key: tensor for key, tensor in saved.items() if key.partition("/")[0] in names}
    model.weights.load_full_state_dict(wanted)


def holds_critic(folder: Path) -> bool:
    """Whether a checkpoint has weights of a critic."""
    return any(key.startswith(CRITIC) for key in _forms(folder))


def _difference(saved: Mapping[str, Form], model: Model, name: str) -> str:
    """The first tensor of a weight set that has another form than the model's; "" without one.

    A critic's do not count where only one side has a critic.
    """
    expected = {key: form_of(p) for key, p in model.weights.expected(name).items()}
    sides = [{k: v for k, v in saved.items() if k.startswith(f"{name}/")}, expected]
    if not all(any(key.startswith(CRITIC) for key in side) for side in sides):
        sides = [{k: v for k, v in side.items() if not k.startswith(CRITIC)} for side in sides]
    there, here = sides
    for key in sorted(there.keys() | here.keys()):
        if there.get(key) != here.get(key):
            shown = [str(side.get(key, "missing")) for side in sides]
            return f"{key.removeprefix(f'{name}/')} is {shown[0]} there and {shown[1]} here"
    return ""


def load_optimizer(
    folder: Path,
    optimizer: torch.optim.Optimizer,
    keep_options: bool = False,
    model: Model | None = None,
) -> None:
    """Restore an optimizer's state from a checkpoint.

    With `keep_options` it keeps its own learning rate, betas and so on, not the saved ones. The
    model that it trains is needed where that, or the checkpoint, is sharded.
    """
    plain = _read_state(folder).get("optimizer")
    saved_shards = is_sharded(folder)
    tensors = {} if saved_shards else read_tensors(folder / OPTIMIZER_FILE)
    with explained_state(folder):
        state = unflatten(plain, tensors)
        groups, unread = state["param_groups"], list[Mapping[str, Any]]()
        if isinstance(groups, list) and len(groups) == len(optimizer.param_groups) + 1:
            # an earlier version trained a critic that nothing read, in the last group
            unread = [state["state"].pop(number, {}) for number in groups.pop()["params"]]
        require_groups(state, optimizer)
        moments = [*state["state"].values(), *unread]
        if len(tensors) != sum(isinstance(v, Tensor) for own in moments for v in own.values()):
            raise ValueError(f"{OPTIMIZER_FILE} has tensors that it does not name")
    if saved_shards:
        from rlfactory.run.checkpoint.sharded import load_moments

        assert model is not None
        sharded = load_moments(folder, model, optimizer)
        state["state"] = {n: {**state["state"].get(n, {}), **v} for n, v in sharded.items()}
    with explained_state(folder):
        require_moments(state, optimizer)
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
    content = _read_state(folder)
    content.pop("optimizer", None)
    with explained_state(folder):
        return dict(unflatten(content, {}))


def _read_state(folder: Path) -> dict[str, Any]:
    try:
        return dict(read_json(folder / STATE_FILE, dict[str, Any]))
    except (FileError, FileNotFoundError) as error:
        raise RunFolderError(f"{error}; {REMOVE}") from error


@contextmanager
def explained_state(folder: Path) -> Iterator[None]:
    """Errors of a state that does not fit, where it is restored, as one error with its file."""
    try:
        yield
    except STATE_ERRORS as error:
        reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        message = f"{folder / STATE_FILE} holds another state than this run's ({reason[:200]})"
        raise RunFolderError(f"{message}; {REMOVE}") from error


def load_initial_weights(
    run: Path, model: Model, reference: Literal["start", "base"] = "start"
) -> None:
    """Start a new run from another one's weights: policy and critic of its newest checkpoint; or
    from LoRA adapters that diffusers or PEFT saved, a file or its folder.

    The weight sets that follow the policy start equal to it, as does the `reference`, unless it is
    to stay the pretrained network. RunFolderError without a checkpoint, or where it is of another
    model.
    """
    run = run.expanduser()
    source = None if RunFolder(run).config.is_file() else find_adapters(run)
    if source is not None:
        names = (key.replace(".default", "") for key in model.weights.parameters)
        modules = {MATRIX.sub("", name) for name in names if MATRIX.search(name)}
        adapters = read_adapters(source, known=modules)
        model.weights.load_full_state_dict(_adapter_state(adapters, model))
    else:
        source = newest(RunFolder(run).checkpoints)
        if source is None:
            raise RunFolderError(
                f"begin_from: {run} holds no undamaged checkpoint; type"
                f" rlfactory resume {shlex.quote(str(run))}"
            )
        if difference := _difference(_forms(source), model, POLICY):
            raise RunFolderError(
                f"begin_from: {run} trained other weights: {difference}; choose the"
                " model as that run did, or type begin_from=null"
            )
        _load_sets(source, model, [POLICY])
    if reference == "start":
        model.weights.refer_to_policy()
    for name in (EMA, OLD):
        if name in model.weights:
            model.weights.update(name, decay=0.0)
    log.info("starting with the weights of %s", source)


def _adapter_state(adapters: AdapterFile, model: Model) -> dict[str, Tensor]:
    """The policy with the adapters of a file; what it has beside adapters, a critic, stays."""
    expected = {k: v for k, v in model.weights.full_state_dict().items() if k.startswith(POLICY)}
    saved = read_tensors(adapters.path)
    state = {}
    for key, values in expected.items():
        if "lora_" not in key:
            continue
        name = key.replace(".default", "")  # PEFT's name of the one adapter
        found = [k for k in adapters.keys if name.endswith((f".{k}", f"/{k}"))]
        tensor = saved[adapters.keys[max(found, key=len)]] if found else None
        # a linear layer may have been saved as a convolution of one pixel
        if tensor is not None and tensor.flatten(1).shape == values.flatten(1).shape:
            tensor = tensor.view_as(values)
        if tensor is None or tensor.shape != values.shape:
            there = "missing" if tensor is None else form_of(tensor)
            raise RunFolderError(
                f"begin_from: {adapters.path} has other adapters: {name.removeprefix(f'{POLICY}/')}"
                f" is {there} there and {form_of(values)} here; choose model and"
                " model.lora_targets as it was trained, or type begin_from=null"
            )
        state[key] = tensor.to(values.dtype)
    if len(state) != len(adapters.keys):
        raise RunFolderError(
            f"begin_from: {adapters.path} adapts {len(adapters.keys) // 2} layers, and here"
            f" {len(state) // 2} are; choose model.lora_targets as it was trained"
        )
    return {**expected, **state}


def _forms(checkpoint: Path) -> Mapping[str, Form]:
    """The forms of all tensors of a checkpoint's weight sets, from the headers of its files."""
    if is_sharded(checkpoint):
        from rlfactory.run.checkpoint.sharded import saved_forms

        return saved_forms(checkpoint)
    return read_forms(checkpoint / WEIGHTS_FILE)
