"""An optimizer's state as plain tensors, also where the network is sharded over ranks (FSDP2)."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rlfactory.model.base import ImageModel
from rlfactory.model.text_base import TextModel


def local_optimizer_state(
    model: ImageModel | TextModel, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """An optimizer's state dict with plain tensors: of sharded ones this rank's part."""
    state = optimizer.state_dict()
    if (sharding := model.weights.sharding) is None:
        return state
    local = map_optimizer_state(lambda _, t: sharding.local(t), state["state"], model, optimizer)
    return {**state, "state": local}


def load_local_optimizer_state(
    state: dict[str, Any], model: ImageModel | TextModel, optimizer: torch.optim.Optimizer
) -> None:
    """Restore what `local_optimizer_state` returned."""
    if (sharding := model.weights.sharding) is not None:
        moments = map_optimizer_state(sharding.dtensor, state["state"], model, optimizer)
        state = {**state, "state": moments}
    optimizer.load_state_dict(state)


def map_optimizer_state(
    change: Callable[[str, Tensor], Tensor],
    state: Mapping[int, Mapping[str, Any]],
    model: ImageModel | TextModel,
    optimizer: torch.optim.Optimizer,
) -> dict[int, dict[str, Any]]:
    """An optimizer's state with each tensor changed by `change(parameter name, tensor)`."""
    names = parameter_names(model, optimizer)
    return {
        number: {
            k: change(names[number], v) if isinstance(v, Tensor) else v for k, v in values.items()
        }
        for number, values in state.items()
    }


def parameter_names(model: ImageModel | TextModel, optimizer: torch.optim.Optimizer) -> list[str]:
    """The names of an optimizer's parameters, in the order in which its state dict counts them."""
    names = {id(p): name for name, p in model.weights.parameters.items()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
