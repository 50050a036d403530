"""From a frozen configuration to live objects, in the order in which they need each other."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from rlfactory.model.base import ImageModel
from rlfactory.model.weights import EMA
from rlfactory.targets import instantiate, locate
from rlfactory.trainer import Budget, Parts

Config = Mapping[str, Any]


def make(config: Config, group: str, **available: object) -> Any:
    """The object of one group. Its constructor's positional parameters name what it takes of
    `available`.
    """
    node = config[group]
    parameters = inspect.signature(locate(node["_target_"], group)).parameters.values()
    wanted = {p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    runtime = {name: value for name, value in available.items() if name in wanted}
    return instantiate(node, group, **runtime)


def build(config: Config) -> Parts:
    """Everything that a run needs. The weight sets that its parts compare with are kept from the
    start.
    """
    hardware = make(config, "hardware")
    model: ImageModel = make(config, "model", device=hardware.device, seed=config["seed"])
    dynamics = make(config, "dynamics")
    algo = make(config, "algo", dynamics=dynamics)
    regularizer = make(config, "regularizer", dynamics=dynamics)
    for name in {algo.behaviour, regularizer.reference, EMA} - {None}:
        model.weights.add(name)
    parameters = list(model.weights.parameters.values())
    return Parts(
        model=model,
        dynamics=dynamics,
        sigmas=make(config, "schedule").sigmas(model.shift),
        window=make(config, "window"),
        algo=algo,
        regularizer=regularizer,
        reward=make(config, "reward", device=hardware.device),
        prompts=make(config, "prompts"),
        hardware=hardware,
        optimizer=instantiate(config["optimizer"], "optimizer", params=parameters),
    )


def budget(config: Config) -> Budget:
    """The numbers that stand at the root of a configuration."""
    names = set(inspect.signature(Budget).parameters) - {"ema_decay"}
    return Budget(**{name: config[name] for name in names}, ema_decay=config["ema"]["decay"])


def evaluation_sigmas(config: Config, model: ImageModel) -> torch.Tensor:
    """The schedule that evaluations sample with: its number of steps may differ from training's."""
    sigmas: torch.Tensor = make(config, "schedule").sigmas(
        model.shift, config["evaluation"]["steps"]
    )
    return sigmas
