"""Builds the live objects of an experiment from its frozen configuration."""

import copy
import inspect
import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from rlfactory.algo.base import Algorithm
from rlfactory.config.schema.targets import instantiate, locate
from rlfactory.hardware.base import Hardware
from rlfactory.model.ema import EMASchedule
from rlfactory.model.merged_start import merge_start
from rlfactory.model.pipelines.embedding_cache import PromptCache
from rlfactory.model.pipelines.noise_levels import noise_levels
from rlfactory.model.pipelines.scheduler_config import timestep_notes
from rlfactory.model.precision import network_on
from rlfactory.model.weight_sets import EMA, OLD, REFERENCE
from rlfactory.prompts.base import Prompt, PromptError, Prompts
from rlfactory.prompts.ops.prompt_list import GivenPrompts, texts_of
from rlfactory.run.loggers import Logger, NoLogger, Several
from rlfactory.run.loggers.fault_tolerant import FaultTolerant
from rlfactory.train.components import Components, NoProgress, RunStop, TrainingBudget
from rlfactory.train.evaluation.build import build_prompt_sets, check_prompts
from rlfactory.train.operations import record_operations
from rlfactory.train.sampling.base import Advance
from rlfactory.train.sampling.choose import build_sampler
from rlfactory.train.scoring.build import build_rewards, build_scorer, reward_device
from rlfactory.utils.dotted_keys import Config
from rlfactory.utils.errors import ModelError
from rlfactory.utils.live_objects import is_reference, resolve

log = logging.getLogger(__name__)


def instantiate_group(config: Config, group: str, **available: object) -> Any:
    """Instantiate the `_target_` of a group; each constructor in it gets those of the `available`
    run-time objects that its parameters name.
    """
    return instantiate(config[group], group, **available)


def build_hardware(config: Config) -> Hardware:
    """The hardware of this process; on several ranks it waits until all of them have come."""
    # gradients vanish in float16 unless the loss is scaled; bfloat16 has the range of float32
    is_float16 = instantiate_group(config, "precision").learning == torch.float16
    return instantiate_group(config, "hardware", loss_scaling=is_float16)


def build(
    config: Config, advance: Advance | None = None, hardware: Hardware | None = None
) -> Components:
    """Build all components, in the order in which they need each other.

    Args:
        advance: called with the number of samples drawn, and with 0 before each pass of the
            network; it may raise, to stop.
        hardware: that of this process, where it was built already.

    Raises:
        RewardError: a reward's device does not exist, or a reward does not fit the prompts.
    """
    advance = advance or NoProgress().advance
    prompts = instantiate_group(config, "prompts")
    hardware = hardware or build_hardware(config)
    device = reward_device(config, hardware.device)
    reward, eval_rewards = build_rewards(config, device)
    sets = build_prompt_sets(config)
    # before the model is loaded, which takes longest
    check_prompts(config, prompts, sets, reward, eval_rewards)
    model = _build_model(config, prompts, hardware)
    model.evaluations.on_pass = partial(advance, 0)
    dynamics = instantiate_group(config, "dynamics", process=model.forward_process)
    # token dynamics have no noise levels
    schedule = instantiate_group(config, "schedule") if model.media != "texts" else None
    sigmas = schedule and noise_levels(schedule, model.resolution)
    times = instantiate_group(config, "times")
    weights = {} if reward.score_weights is None else {"weights": dict(reward.score_weights)}
    advantage = instantiate({**config["advantage"], **weights}, "advantage")
    algo = build_algorithm(
        config, dynamics=dynamics, advantage=advantage, times=times, sigmas=sigmas, reward=reward
    )
    if algo.requires == "forward_process":
        times.require_steps(sigmas)
    regularizer = instantiate_group(config, "regularizer", dynamics=dynamics)
    if model.media == "texts":
        draws = reward.gives_scores or eval_rewards or isinstance(prompts, GivenPrompts)
        # a given completion needs room for its first token at least; only a command's own prompts,
        # and evaluations that a reward scores, are answered by the policy
        trained = drawn = dynamics.length
        if algo.samples_from == "data":
            trained = 0 if algo.learns_whole_texts else 1
            drawn = drawn if draws else trained
        _leave_out_long(config, model, prompts, sets, trained, drawn)
    optimizer = build_optimizer(config, model.parameter_groups(), hardware.device, model)
    record_operations(model, optimizer, hardware.rank)
    needed = {algo.behaviour, *algo.compared_weight_sets, *regularizer.references}
    averages = _add_weight_sets(config, model, needed)
    return Components(
        model=model,
        sampler=build_sampler(config, model, dynamics, algo, schedule, sigmas, advance),
        algo=algo,
        regularizer=regularizer,
        reward=reward,
        prompts=prompts,
        hardware=hardware,
        optimizer=optimizer,
        stop=RunStop(**config["stop"]),
        averages=averages,
        eval_rewards=eval_rewards,
        prompt_sets=sets,
        scorer=build_scorer(config, [reward, *eval_rewards.values()], device, advance),
    )


def _add_weight_sets(config: Config, model: Any, needed: set[str]) -> dict[str, EMASchedule]:
    """Add the weight sets that are `needed`, and those that evaluations read; returns the schedules
    of those that follow the policy. An older run's average is kept up, even if not read.

    From the start, as copies of the initial weights: later these would be others.
    """
    evaluated = {config["evaluation"]["weights"]}
    if config["evaluation"]["policy_fraction"] < 1 and model.media != "texts":
        evaluated.add(REFERENCE)
    for name in needed | evaluated:
        model.weights.add(name)
    names = (name for name in (EMA, OLD) if name == EMA or name in model.weights)
    return {name: EMASchedule(**config[name]) for name in names}


def _build_model(config: Config, prompts: Prompts, hardware: Hardware) -> Any:
    """The model on its devices, sharded where the hardware shards it."""
    folder = config["prompt_cache"]
    cache = PromptCache(
        folder and Path(folder).expanduser(),
        known_prompts(config, prompts),
        rank=hardware.rank,
        world_size=hardware.world_size,
    )
    precision, memory = instantiate_group(config, "precision"), instantiate_group(config, "memory")
    algo = locate(config["algo"]["_target_"], "algo")
    options = config["algo"] if isinstance(algo, type) else vars(algo)
    with network_on(hardware.network_device):
        model = instantiate_group(
            config,
            "model",
            device=hardware.device,
            seed=config["seed"],
            precision=precision,
            memory=memory,
            prompt_cache=cache,
            has_critic=bool(algo.needs_critic(options)),
        )
    merge_adapters_below(config, model)
    if model.process == "vp" and (pipe := getattr(model, "pipe", None)) is not None:
        for note in timestep_notes(pipe.scheduler.config, config["schedule"]):
            log.warning("%s", note)
    hardware.prepare(model)  # before the optimizer gets its parameters
    return model


def merge_adapters_below(config: Config, model: Any) -> None:
    """Merge the adapters that a run begins from into the model's network, if they are to be.

    Before weights are sharded or copied. The model's own adapters, which are exported, know them.
    """
    if config.get("begin_as") != "merged":
        return
    if not isinstance(network := getattr(model, "network", None), torch.nn.Module):
        kind = type(model).__name__
        raise ModelError(f"begin_as=merged: {kind} has no `network` to merge adapters into")
    start = merge_start(network, Path(config["begin_from"]), getattr(model, "pipeline", None))
    if (lora := getattr(model, "lora", None)) is not None:
        lora.start = start


def build_algorithm(config: Config, **available: object) -> Algorithm[Any, Any, Any]:
    """The algorithm, with those of the run-time objects that its constructor names.

    An instance that a Python caller handed over is copied, so that a second run can have it too,
    and gets all of them as attributes, except those that it has.
    """
    target = config["algo"]["_target_"]
    algo: Algorithm[Any, Any, Any] = instantiate_group(config, "algo", **available)
    if not is_reference(target) or algo is not resolve(target):
        return algo
    algo = copy.copy(algo)
    for name, value in available.items():
        if getattr(algo, name, None) is None:
            setattr(algo, name, value)
    return algo


def build_optimizer(
    config: Config,
    groups: list[dict[str, Any]],
    device: torch.device,
    model: Any = None,
) -> torch.optim.Optimizer:
    """The optimizer of these parameter groups; `fused: null` is fused on CUDA.

    An optimizer that treats parameters apart by what they do names the `trained_model`.

    torch's own default there, `foreach`, takes a scratch copy of what is trained.
    """
    options = config["optimizer"]
    if device.type == "cuda" and options.get("fused", False) is None:
        config = {**config, "optimizer": {**options, "fused": True}}
    return instantiate_group(config, "optimizer", params=groups, trained_model=model)


def build_logger(config: Config, hardware: Hardware, say: Callable[[str], None]) -> Logger:
    """The logger, which cannot end the run by failing; on ranks other than 0 it drops everything.

    `say` shows a line if it fails.
    """
    if hardware.rank != 0:
        return NoLogger()
    node = config["logger"]
    target = locate(node["_target_"], "logger")
    if target is Several:
        nodes = {name: node["parts"][name] for name in node["of"]}
    else:
        nodes = {getattr(target, "__name__", type(target).__name__): node}
    makers = {name: partial(instantiate, part, "logger") for name, part in nodes.items()}
    return FaultTolerant(makers, say)


def _leave_out_long(
    config: Config,
    model: Any,
    prompts: Prompts,
    sets: dict[str, list[Prompt]],
    trained: int,
    drawn: int,
) -> None:
    """Leave out the prompts behind which too few tokens fit, or raise: `trained` where they are
    trained on, `drawn` where they are evaluated on; 0: prompts are not read by themselves.
    """
    count, left_out = config["evaluation"]["prompts"], set[str]()
    while True:  # others are evaluated in the place of those that are left out
        own = [prompt.text for prompt in prompts.held_out(count)]
        of_sets = [prompt.text for listed in sets.values() for prompt in listed]
        read = ((prompts.texts(), trained), ([*own, *of_sets], drawn))
        long = {p for texts, room in read if room for p in model.check_lengths(texts, room)}
        if not long:
            break
        prompts.leave_out(long)
        left_out |= long
        sets |= {name: [p for p in of if p.text not in long] for name, of in sets.items()}
    if empty := [name for name, listed in sets.items() if not listed]:
        raise PromptError(f"eval_sets.of: no prompt of {empty[0]} is short enough for the model")
    if left_out:
        message = "%d prompts are left out: too long for the model (model.long_prompts=drop)"
        log.warning(message, len(left_out))


def known_prompts(config: Config, prompts: Prompts) -> tuple[str, ...]:
    """The texts of all prompts that a run will use; none if they are drawn from an endless set."""
    if not (texts := texts_of(learned_prompts(config, prompts))):
        return ()
    held_out = [prompt.text for prompt in prompts.held_out(config["evaluation"]["prompts"])]
    of_sets = [p.text for listed in build_prompt_sets(config).values() for p in listed]
    return tuple(dict.fromkeys([*texts, *held_out, *of_sets]))


def learned_prompts(config: Config, prompts: Prompts) -> Iterable[Prompt]:
    """The known prompts that a run learns from, read one by one: of large data those alone that its
    iterations draw.
    """
    iterations, count = config["iterations"], config["prompts_per_iteration"]
    if len(prompts.texts()) <= iterations * count:
        return prompts.known()
    draws = (prompts.draw(count, seed=config["seed"], iteration=i) for i in range(iterations))
    return chain.from_iterable(draws)


def training_budget(config: Config) -> TrainingBudget:
    """The numbers of an experiment, from the root of its configuration."""
    nested = config["learning_rate"]
    names = inspect.signature(TrainingBudget).parameters
    return TrainingBudget(**{n: nested[n] if n in nested else config[n] for n in names})
