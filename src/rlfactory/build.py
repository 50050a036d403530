"""From a frozen configuration to live objects, in the order in which they need each other."""

import inspect
from collections.abc import Mapping
from typing import Any

from rlfactory.model.weights import EMA
from rlfactory.run.evaluation import Evaluator
from rlfactory.run.stopping import RunStop
from rlfactory.sampler.base import Advance, Sampler
from rlfactory.sampler.image import ImageSampler
from rlfactory.sampler.text import TextSampler
from rlfactory.targets import instantiate, locate
from rlfactory.trainer import Budget, Parts, Watcher

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


def ignore(count: int) -> None:
    """Ignore progress."""


def build(config: Config, advance: Advance = ignore) -> Parts:
    """Everything that a run needs. The weight sets that its parts compare with are kept from the
    start; `advance` is told of samples that are drawn.
    """
    hardware = make(config, "hardware")
    model = make(config, "model", device=hardware.device, seed=config["seed"])
    dynamics = make(config, "dynamics")
    # texts have no noise levels
    schedule = make(config, "schedule") if model.media == "images" else None
    sigmas = schedule and schedule.sigmas(model.shift)
    times = make(config, "times")
    algo = make(config, "algo", dynamics=dynamics, times=times, sigmas=sigmas)
    if algo.needs == "forward_process":
        times.require_steps(sigmas)
    regularizer = make(config, "regularizer", dynamics=dynamics)
    prompts = make(config, "prompts")
    if model.media == "texts":
        model.require_room(prompts.texts(), dynamics.length)
    for name in {algo.behaviour, regularizer.reference, EMA} - {None}:
        model.weights.add(name)
    return Parts(
        model=model,
        sampler=_sampler(config, model, dynamics, schedule, algo.needs == "transitions", advance),
        algo=algo,
        regularizer=regularizer,
        reward=make(config, "reward", device=hardware.device),
        prompts=prompts,
        hardware=hardware,
        optimizer=instantiate(config["optimizer"], "optimizer", params=model.parameter_groups()),
        stop=RunStop(**config["stop"]),
    )


def _sampler(
    config: Config,
    model: Any,
    dynamics: Any,
    schedule: Any,
    keeps_steps: bool,
    advance: Advance,
) -> Sampler:
    batch = config["sample_batch"]
    if model.media == "texts":
        return TextSampler(model, dynamics=dynamics, batch=batch, advance=advance)
    return ImageSampler(
        model,
        dynamics=dynamics,
        sigmas=schedule.sigmas(model.shift),
        evaluation_sigmas=schedule.sigmas(model.shift, config["evaluation"]["steps"]),
        window=make(config, "window") if keeps_steps else None,
        start_noise=config["start_noise"],
        batch=batch,
        advance=advance,
    )


def budget(config: Config) -> Budget:
    """The numbers that stand at the root of a configuration."""
    nested = {"ema_decay": config["ema"]["decay"], **config["learning_rate"]}
    names = set(inspect.signature(Budget).parameters) - nested.keys()
    return Budget(**{name: config[name] for name in names}, **nested)


def evaluator(config: Config, parts: Parts, watcher: Watcher) -> Evaluator:
    """What judges the weights of `parts`."""
    return Evaluator(
        model=parts.model,
        sampler=parts.sampler,
        reward=parts.reward,
        prompts=parts.prompts.held_out(config["evaluation"]["prompts"]),
        seed=config["seed"],
        watcher=watcher,
    )
