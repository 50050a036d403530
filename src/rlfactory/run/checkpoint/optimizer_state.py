"""An optimizer's state as plain tensors, also where the network is sharded over ranks (FSDP2)."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rlfactory.model.base import Model


def local_optimizer_state(model: Model, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimizer's state dict with plain tensors: of sharded ones this rank's part."""
    state = optimizer.state_dict()
    if (sharding := model.weights.sharding) is None:
        return state
    local = map_optimizer_state(lambda _, t: sharding.local(t), state["state"], model, optimizer)
    return {**state, "state": local}


def load_local_optimizer_state(
    state: dict[str, Any], model: Model, optimizer: torch.optim.Optimizer
) -> None:
    """Restore what `local_optimizer_state` returned."""
    if (sharding := model.weights.sharding) is not None:
        moments = map_optimizer_state(sharding.dtensor, state["state"], model, optimizer)
        state = {**state, "state": moments}
    optimizer.load_state_dict(state)


def map_optimizer_state(
    change: Callable[[str, Tensor], Tensor],
    state: Mapping[int, Mapping[str, Any]],
    model: Model,
    optimizer: torch.optim.Optimizer,
) -> dict[int, dict[str, Any]]:
    """An optimizer's state with each tensor changed by `change(parameter name, tensor)`."""
    names, changed = parameter_names(model, optimizer), dict[int, dict[str, Any]]()
    for number, own in state.items():
        tensors = {k: change(names[number], v) for k, v in own.items() if isinstance(v, Tensor)}
        changed[number] = {**own, **tensors}
    return changed


OF_ADAM = {"step", "exp_avg", "exp_avg_sq"}
"""What AdamW remembers of a parameter."""
BLOCKWISE = ("absmax", "qmap", "state1", "state2", "new_max")
"""Beginnings of the names of 8-bit moments' tensors, which have shapes of their own."""


def require_groups(state: Any, optimizer: torch.optim.Optimizer) -> None:
    """ValueError unless a state dict has an optimizer's groups: as many, of as many parameters, and
    each option of its kind.
    """
    if not isinstance(state, dict) or not isinstance(state.get("state"), dict):
        raise ValueError("the optimizer's state is no mapping")
    groups, own = state.get("param_groups"), optimizer.state_dict()["param_groups"]
    if not isinstance(groups, list) or len(groups) != len(own):
        raise ValueError(f"the optimizer has {len(own)} groups of parameters")
    for saved, current in zip(groups, own, strict=True):
        if not isinstance(saved, dict) or saved.get("params") != current["params"]:
            raise ValueError(f"a group of the optimizer has {len(current['params'])} parameters")
        for name, value in current.items():
            if name in saved and not _alike(saved[name], value):
                raise ValueError(f"the optimizer's {name} is {ascii(saved[name])[:40]}")
            if name not in saved and name != "peak_lr":
                raise ValueError(f"the optimizer's {name} is missing")


def _alike(saved: object, current: object) -> bool:
    """Whether an option is of the same kind; None may be a number or true or false."""
    if isinstance(current, list | tuple):
        if not isinstance(saved, list | tuple) or len(saved) != len(current):
            return False
        return all(map(_alike, saved, current))
    plain = (bool, int, float, type(None))
    return isinstance(saved, plain) if isinstance(current, plain) else type(saved) is type(current)


def require_moments(state: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> None:
    """ValueError unless the moments in a state dict are those of an optimizer's parameters: the
    same ones of each, of its shape or one number, and floating-point numbers. A parameter that had
    no gradient yet has none.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    is_adam = type(optimizer) in (torch.optim.AdamW, torch.optim.Adam)
    for number, values in state["state"].items():
        if type(number) is not int or not 0 <= number < len(parameters):
            raise ValueError(f"the optimizer has a moment of parameter {ascii(number)[:40]}")
        for name, value in values.items():
            if problem := _moment_problem(name, value, parameters[number]):
                raise ValueError(f"the optimizer's {name} of parameter {number} {problem}")
        if is_adam and not values.keys() >= OF_ADAM:
            raise ValueError(f"the optimizer lacks moments of parameter {number}")


def _moment_problem(name: object, value: object, parameter: Tensor) -> str:
    if not isinstance(name, str) or not isinstance(value, Tensor):
        return "" if isinstance(value, int | float) else f"is {ascii(value)[:40]}"
    if name.startswith(BLOCKWISE):
        return ""
    if value.numel() != 1 and value.shape != parameter.shape:
        return f"has the shape {[*value.shape]}, and the parameter {[*parameter.shape]}"
    is_moment = name.startswith("exp_avg")
    if (name == "step" and value.numel() != 1) or (is_moment and value.shape != parameter.shape):
        return f"has the shape {[*value.shape]}"
    return "" if value.is_floating_point() else f"has the type {value.dtype}"


def parameter_names(model: Model, optimizer: torch.optim.Optimizer) -> list[str]:
    """The names of an optimizer's parameters, in the order in which its state dict counts them."""
    names = {id(p): name for name, p in model.weights.parameters.items()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
