"""From a frozen configuration to live objects, in the order in which they need each other."""

import inspect
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlfactory.algo.base import Algorithm
from rlfactory.model.averaging import Average
from rlfactory.model.base import Resolution
from rlfactory.model.prompt_cache import PromptCache
from rlfactory.model.weights import EMA, OLD
from rlfactory.parts import Budget, Parts, Watcher
from rlfactory.prompts.base import Prompts
from rlfactory.run.evaluation import Evaluator
from rlfactory.run.stopping import RunStop
from rlfactory.sampler.base import Advance, Sampler
from rlfactory.sampler.image import ImageSampler, Kept
from rlfactory.sampler.text import TextSampler
from rlfactory.targets import instantiate

Config = Mapping[str, Any]


def make(config: Config, group: str, **available: object) -> Any:
    """The object of one group, with what its constructor and those of its parts name of
    `available`.
    """
    return instantiate(config[group], group, **available)


def ignore(count: int) -> None:
    """Ignore progress."""


def build(config: Config, advance: Advance = ignore) -> Parts:
    """Everything that a run needs. The weight sets that its parts compare with are kept from the
    start; `advance` is told of samples that are drawn.
    """
    prompts = make(config, "prompts")
    precision, memory = make(config, "precision"), make(config, "memory")
    hardware = make(config, "hardware", loss_scaling=precision.learning == torch.float16)
    reward = make(config, "reward", device=hardware.device)
    reward.require(chain(prompts.known(), prompts.held_out(config["evaluation"]["prompts"])))
    cache = PromptCache(_folder(config["prompt_cache"]), known_prompts(config, prompts))
    model = make(
        config,
        "model",
        device=hardware.device,
        seed=config["seed"],
        precision=precision,
        memory=memory,
        prompt_cache=cache,
    )
    dynamics = make(config, "dynamics", process=model.forward_process)
    # texts have no noise levels
    schedule = make(config, "schedule") if model.media == "images" else None
    sigmas = schedule and noise_levels(schedule, model.resolution)
    times, advantage = make(config, "times"), make(config, "advantage")
    algo = make(config, "algo", dynamics=dynamics, advantage=advantage, times=times, sigmas=sigmas)
    if algo.needs == "forward_process":
        times.require_steps(sigmas)
    regularizer = make(config, "regularizer", dynamics=dynamics)
    if model.media == "texts":
        model.require_room(prompts.texts(), dynamics.length)
    for name in {algo.behaviour, EMA, *regularizer.references}:
        model.weights.add(name)
    return Parts(
        model=model,
        sampler=_sampler(config, model, dynamics, algo, schedule, sigmas, advance),
        algo=algo,
        regularizer=regularizer,
        reward=reward,
        prompts=prompts,
        hardware=hardware,
        optimizer=make(config, "optimizer", params=model.parameter_groups()),
        stop=RunStop(**config["stop"]),
        averages={name: Average(**config[name]) for name in (EMA, OLD) if name in model.weights},
    )


def known_prompts(config: Config, prompts: Prompts) -> tuple[str, ...]:
    """The texts that a run will ask for, where its prompts have an end; else none."""
    texts = prompts.texts()
    if not texts:
        return ()
    iterations, count = config["iterations"], config["prompts_per_iteration"]
    if len(texts) > iterations * count:
        rounds = (prompts.draw(count, seed=config["seed"], iteration=i) for i in range(iterations))
        texts = [prompt.text for drawn in rounds for prompt in drawn]
    judged = [prompt.text for prompt in prompts.held_out(config["evaluation"]["prompts"])]
    return tuple(dict.fromkeys([*texts, *judged]))


def _folder(path: str | None) -> Path | None:
    return None if path is None else Path(path).expanduser()


def _sampler(
    config: Config,
    model: Any,
    dynamics: Any,
    algo: Algorithm[Any, Any, Any],
    schedule: Any,
    sigmas: Any,
    advance: Advance,
) -> Sampler:
    batch = config["sample_batch"]
    if model.media == "texts":
        return TextSampler(model, dynamics=dynamics, batch=batch, advance=advance)
    size, steps = config["evaluation"]["size"], config["evaluation"]["steps"]
    shown = model.resolution if size is None else model.resolution_of(size)
    return ImageSampler(
        model,
        dynamics=dynamics,
        sigmas=sigmas,
        evaluation_sigmas=noise_levels(schedule, shown, steps),
        evaluation_shape=shown.shape,
        kept=_kept(config, algo.keeps_mean) if algo.needs == "transitions" else None,
        batch=batch,
        advance=advance,
    )


def noise_levels(schedule: Any, at: Resolution, steps: int | None = None) -> Tensor:
    """A schedule's times `[n + 1]` for pictures of some resolution."""
    times: Tensor = schedule.sigmas(at.shift, steps, tokens=at.tokens)
    return times


def _kept(config: Config, mean: bool) -> Kept:
    """What a step-wise algorithm has of a rollout."""
    return Kept(
        make(config, "window"),
        branches=config["branches"],
        branch_at=config["branch_at"],
        mean=mean,
        dtype=getattr(torch, config["latent_storage"]),
        tail=config["tail"],
    )


def budget(config: Config) -> Budget:
    """The numbers that stand at the root of a configuration."""
    nested = config["learning_rate"]
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
