"""From a frozen configuration to live objects, in the order in which they need each other."""

import inspect
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlfactory.algo.base import Algorithm
from rlfactory.hardware.base import Hardware
from rlfactory.isolated import Isolated
from rlfactory.model.averaging import Average
from rlfactory.model.base import Resolution
from rlfactory.model.prompt_cache import PromptCache
from rlfactory.model.weights import EMA, OLD
from rlfactory.overlap import Scorer
from rlfactory.parts import Budget, Parts, Watcher
from rlfactory.placement import Placement
from rlfactory.prompts.base import Prompts
from rlfactory.reward.base import Reward, RewardError
from rlfactory.run.evaluation import Evaluator
from rlfactory.run.stopping import RunStop
from rlfactory.sampler.base import Advance, Sampler
from rlfactory.sampler.image import ImageSampler, Kept
from rlfactory.sampler.text import TextSampler
from rlfactory.targets import instantiate, locate

Config = Mapping[str, Any]


def make(config: Config, group: str, **available: object) -> Any:
    """The object of one group, with what its constructor and those of its parts name of
    `available`.
    """
    return instantiate(config[group], group, **available)


def ignore(count: int) -> None:
    """Ignore progress."""


def hardware_of(config: Config) -> Hardware:
    """Where a run computes; of several processes each makes its own, and waits for the others."""
    halved = make(config, "precision").learning == torch.float16
    hardware: Hardware = make(config, "hardware", loss_scaling=halved)
    return hardware


def build(config: Config, advance: Advance = ignore, hardware: Hardware | None = None) -> Parts:
    """Everything that a run needs. The weight sets that its parts compare with are kept from the
    start. `advance` is told of samples that are drawn, and of smaller steps with 0; it may raise.
    """
    prompts = make(config, "prompts")
    precision, memory = make(config, "precision"), make(config, "memory")
    hardware = hardware or hardware_of(config)
    device = _reward_device(config, hardware.device)
    reward, eval_rewards = rewards(config, device)
    held_out = prompts.held_out(config["evaluation"]["prompts"])
    reward.require([*prompts.known(), *held_out])
    for other in eval_rewards.values():
        other.require(held_out)
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
    hardware.prepare(model)
    model.evaluations.watch = partial(advance, 0)
    dynamics = make(config, "dynamics", process=model.forward_process)
    # texts have no noise levels
    schedule = make(config, "schedule") if model.media == "images" else None
    sigmas = schedule and noise_levels(schedule, model.resolution)
    times, advantage = make(config, "times"), make(_with_weights(config, reward), "advantage")
    algo = make(config, "algo", dynamics=dynamics, advantage=advantage, times=times, sigmas=sigmas)
    if algo.needs == "forward_process":
        times.require_steps(sigmas)
    regularizer = make(config, "regularizer", dynamics=dynamics)
    if model.media == "texts":
        model.require_room(prompts.texts(), dynamics.length)
    optimizer = make(config, "optimizer", params=model.parameter_groups())
    hardware.adopt(optimizer, model)
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
        optimizer=optimizer,
        stop=RunStop(**config["stop"]),
        averages={name: Average(**config[name]) for name in (EMA, OLD) if name in model.weights},
        eval_rewards=eval_rewards,
        scorer=_scorer(config, [reward, *eval_rewards.values()], device, advance),
    )


def rewards(config: Config, device: torch.device) -> tuple[Reward, dict[str, Reward]]:
    """The reward that trains, and by name those that only evaluate.

    What is configured alike is one object, loaded once, wherever it is named.
    """
    made: dict[str, Reward] = {}

    def one(node: Config, key: str) -> Reward:
        if "parts" in node:
            parts = {n: one(part, f"{key}.parts.{n}") for n, part in node["parts"].items()}
            combined: Reward = make({key: {**node, "parts": parts}}, key, device=device)
            return combined
        frozen = json.dumps(node, sort_keys=True, default=str)
        if frozen not in made:
            made[frozen] = _single_reward(config, node, key, device)
        return made[frozen]

    others = config["eval_rewards"]["parts"]
    trained = one(config["reward"], "reward")
    return trained, {n: one(part, f"eval_rewards.parts.{n}") for n, part in others.items()}


def _single_reward(config: Config, node: Config, key: str, device: torch.device) -> Reward:
    scoring = config["scoring"]
    asks = scoring["background"] == "thread" and getattr(
        locate(node["_target_"], key), "isolated", False
    )
    if asks or scoring["background"] == "process":
        timeout, processes = scoring["timeout"], scoring["processes"]
        return Isolated(node, key, device, timeout=timeout, processes=processes)
    reward: Reward = make({key: node}, key, device=device)
    return reward


def _with_weights(config: Config, reward: Reward) -> Config:
    """The configuration with the scores that a reward wants to train in its advantage."""
    if reward.trains is None:
        return config
    return {**config, "advantage": {**config["advantage"], "weights": dict(reward.trains)}}


def _reward_device(config: Config, default: torch.device) -> torch.device:
    """Where rewards compute; RewardError where there is no such device."""
    name = config["scoring"]["device"]
    if name is None:
        return default
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        reason = str(error).splitlines()[0]
        raise RewardError(f"scoring.device={name} can't be used: {reason}") from error


def _scorer(config: Config, made: list[Reward], device: torch.device, advance: Advance) -> Scorer:
    scoring, placement = config["scoring"], None
    if scoring["offload"]:
        placement = Placement(made, device)
        placement.away()
    # a process has a timeout of its own
    timeout = scoring["timeout"] if scoring["background"] == "thread" else None
    return Scorer(scoring["background"] != "none", timeout, placement, advance)


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
        others=parts.eval_rewards,
        scorer=parts.scorer,
        max_failed=config["max_failed"],
        prompts=parts.prompts.held_out(config["evaluation"]["prompts"]),
        seed=config["seed"],
        watcher=watcher,
        hardware=parts.hardware,
    )
