"""What is saved of a network that is divided among processes: tensors that are whole again."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from rlfactory.model.base import ImageModel
from rlfactory.model.text import TextModel
from rlfactory.model.weights import POLICY


def gather_checkpoint(model: ImageModel | TextModel, optimizer: torch.optim.Optimizer) -> None:
    """The part of saving that all processes take, where each has a part of the network."""
    if model.weights.division is not None:
        model.weights.whole_state()
        moments_of(model, optimizer)


def moments_of(model: ImageModel | TextModel, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimiser's state, undivided."""
    state = optimizer.state_dict()
    if (division := model.weights.division) is None:
        return state
    return {**state, "state": mapped(division.whole_moment, state["state"], model, optimizer)}


def mapped(
    change: Callable[[str, Tensor], Tensor],
    state: Mapping[int, Mapping[str, Any]],
    model: ImageModel | TextModel,
    optimizer: torch.optim.Optimizer,
) -> dict[int, dict[str, Any]]:
    """An optimiser's tensors, each changed as one of the parameter that it belongs to."""
    names = {id(p): name for name, p in model.weights.parameters.items()}
    moved = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
    return {
        number: {
            k: change(moved[number], v) if isinstance(v, Tensor) else v for k, v in own.items()
        }
        for number, own in state.items()
    }


def standing(
    model: ImageModel | TextModel, exported: str, weights: Mapping[str, Tensor]
) -> AbstractContextManager[None]:
    """The network with the weights of a set, for what saves it."""
    if (division := model.weights.division) is None:
        return model.weights(exported)
    values = {key.removeprefix(f"{POLICY}/"): value for key, value in weights.items()}
    prefix = f"{exported}/"
    values |= {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    return division.standing_in(values)
