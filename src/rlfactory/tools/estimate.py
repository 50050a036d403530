"""`rlfactory estimate`: memory, FLOPs, kernels and a GPU's seconds of a run, on fake tensors.

The real model is built without its weights, and the real engine draws a batch and makes updates of
two micro-batches on it; nothing is computed or downloaded. So it holds for any model, algorithm and
penalty, plug-ins too. Rewards are not built: their networks are those of the plan.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from rlfactory.config.evaluation_prompts import evaluation_draws
from rlfactory.config.memory.devices import GIB, gpu_of, on_gpu, processes_of
from rlfactory.config.memory.peak_memory import traits_of
from rlfactory.config.nfe import items_per_sample, update_items
from rlfactory.model.lm.attention import GPT2Step
from rlfactory.model.text_base import TextModel
from rlfactory.rollout import Tokens
from rlfactory.tools.empty_models import empty_models
from rlfactory.tools.fake_tensors import (
    LAUNCHES,
    MOVED,
    Counting,
    Work,
    bytes_of,
    fake_run,
    flops_of,
    no_work,
    seconds_on,
)
from rlfactory.train import build as engine
from rlfactory.train.components import Components, NoProgress
from rlfactory.train.trainer import Trainer
from rlfactory.utils.dotted_keys import with_values

Config = Mapping[str, Any]
MICRO_BATCHES = 2
"""Of an update: the second one has the gradient of the first beside it."""
TOKENS = 3
"""Of a response are drawn: the passes of all further ones are like the last one's."""
ALONE = {
    "hardware": {"_target_": "rlfactory.hardware.local.Local", "device": "cpu"},
    "engine": {"_target_": "rlfactory.engine.own.Own"},
    "prompt_cache": None,
    "begin_as": "continued",  # merged adapters have shapes of the network alone
}


@dataclass(frozen=True)
class Counted:
    """Memory and work of one process of a run that has the whole network.

    Attributes:
        resident: bytes that are held all the time.
        phases: the most bytes that each phase of an iteration holds on top.
        work: of an iteration, by phase.
        parameters, trainable: numbers of the network, and of what is trained.
    """

    resident: float
    phases: Mapping[str, float]
    work: Mapping[str, Work]
    evaluation: Work
    parameters: int
    trainable: int

    @property
    def peak(self) -> float:
        """Peak memory in bytes."""
        return self.resident + max(self.phases.values())


class Phases:
    """Memory, at most, and work of each phase; one follows another.

    Attributes:
        marks: the work done where a micro-batch, or what follows the last one, began.
        token: the work of one token, of a language model.
        waiting: bytes of what was drawn.
    """

    def __init__(self, counting: Counting) -> None:
        self.counting, self._name, self._began = counting, "", no_work()
        self.memory: dict[str, float] = defaultdict(float)
        self.work: dict[str, Work] = defaultdict(no_work)
        self.marks: list[Work] = []
        self.token: Work | None = None
        self.waiting = 0.0

    def enter(self, name: str) -> None:
        """End the phase, and begin another."""
        counting = self.counting
        if self._name:
            self.memory[self._name] = max(self.memory[self._name], counting.peak)
            self.work[self._name] += counting.work - self._began
        self._name, self._began, counting.peak = name, counting.work.copy(), counting.now

    def mark(self) -> None:
        """A micro-batch, or what follows the last one, begins."""
        self.marks.append(self.counting.work.copy())


def count(config: Config) -> Counted:
    """Count a run of a frozen configuration.

    Raises:
        UserError: the model is neither on this machine nor a published one.
    """
    own = _shrunk(config)
    with fake_run() as (mode, counting), empty_models(mode):
        components = engine.build(own, hardware=engine.build_hardware(own))
        trainer = Trainer(components, engine.training_budget(own), NoProgress())
        base, phases = counting.now, Phases(counting)
        with _watched(components, phases):
            phases.enter("sampling")
            rollout = trainer.sample(0)
            drawn = len(rollout)
            phases.waiting = float(bytes_of(rollout))
            phases.enter("scoring")
            names = {*components.algo.reward_names(components.reward.main), components.reward.main}
            scores = {name: torch.rand(drawn) for name in names}
            rollout, _ = trainer.score(rollout, lambda: scores)
            for iteration in range(2):  # moments are there from the second update on
                phases.enter("comparing")
                trainer.learner.learn(rollout, iteration)
            phases.enter("")
        return _of_run(config, phases, components.model, drawn=drawn, base=base)


def _shrunk(config: Config) -> Config:
    """The configuration with as many samples as fill a batch and two micro-batches."""
    items = items_per_sample(config, traits_of(config))
    samples = max(config["sample_batch"], MICRO_BATCHES * config["micro_batch"] / items, 1)
    prompts = min(int(-(-samples // config["group_size"])), config["prompts_per_iteration"])
    changes = {"prompts_per_iteration": prompts, "updates_per_iteration": 1, "epochs": 1}
    if on_gpu(config) and config["optimizer"].get("fused", 0) is None:
        changes["optimizer.fused"] = True
    changed = with_values(config, changes)
    return {**changed, **{key: value for key, value in ALONE.items() if key in changed}}


def _of_run(config: Config, phases: Phases, model: Any, *, drawn: int, base: float) -> Counted:
    """The counts of a whole iteration, of what was drawn and of two micro-batches."""
    traits, processes = traits_of(config), processes_of(config)
    samples = config["prompts_per_iteration"] * config["group_size"] / processes
    items, size = update_items(config, traits)
    updates = config["updates_per_iteration"] * config["epochs"]
    each = {name: work / drawn for name, work in phases.work.items()}
    if phases.token is not None:
        each["sampling"] += phases.token * (config["dynamics"]["length"] - TOKENS)
    learned = (phases.marks[-1] - phases.marks[-2]) / min(size, items)
    compared = each.get("comparing", no_work()) * (samples / 2)
    drawn_in = [name for name in ("sampling", "decoding", "scoring") if name in each]
    work: dict[str, Work] = {name: each[name] * samples for name in drawn_in}
    work["learning"] = learned * (items / processes * updates) + compared
    work["updating"] = phases.work["updating"] * (0.5 * updates)
    drawing = each["sampling"] + each.get("decoding", no_work())
    pipe = getattr(model, "pipe", None)
    parts = [model.network] if pipe is None else [*pipe.components.values()]
    # adapters are counted as they are made
    weights = sum(bytes_of(part) for part in parts if isinstance(part, nn.Module))
    waiting = phases.waiting * (samples / drawn - 1)
    peaks = {name: peak - base + max(waiting, 0) for name, peak in phases.memory.items()}
    return Counted(
        weights + base,
        {name: peak for name, peak in peaks.items() if name != "comparing"},
        work,
        drawing * (evaluation_draws(config) / processes),
        sum(p.numel() for p in model.network.parameters()),
        sum(p.numel() for p in model.weights.parameters.values()),
    )


@contextmanager
def _watched(components: Components, phases: Phases) -> Iterator[None]:
    """An engine whose phases are told apart, and which repeats nothing that it has counted."""
    model: Any = components.model
    hardware = components.hardware
    padded, step, replaced = hardware.pad_micro_batches, hardware.step, mock.patch.object

    def two(own: Any, padding: Any) -> Iterator[Any]:
        learns = torch.is_grad_enabled()
        if learns:
            phases.enter("learning")
        for batch in islice(padded(own, padding), MICRO_BATCHES if learns else None):
            if learns:
                phases.mark()
            yield batch

    def stepped(*arguments: Any) -> Any:
        phases.mark()
        phases.enter("updating")
        return step(*arguments)

    def decoded(latents: Tensor) -> Any:
        phases.enter("decoding")
        images = decode(latents)
        phases.enter("sampling")
        return images

    with ExitStack() as stack:
        stack.enter_context(replaced(hardware, "pad_micro_batches", two))
        stack.enter_context(replaced(hardware, "step", stepped))
        if isinstance(model, TextModel):
            stack.enter_context(replaced(model, "rollout", _first_tokens(model, phases)))
            stack.enter_context(replaced(GPT2Step, "fits", return_value=False))
        else:
            decode = model.decode
            stack.enter_context(replaced(model, "predict", _remembered(model, phases.counting)))
            stack.enter_context(replaced(model, "decode", decoded))
        yield


def _remembered(model: Any, counting: Counting) -> Callable[..., Any]:
    """A model's `predict` that makes each pass without a gradient once, and counts it again."""
    predict, known = model.predict, dict[Any, tuple[Tensor, Work, int]]()

    def remembered(x: Tensor, t: Tensor, condition: Any) -> Any:
        if torch.is_grad_enabled():
            return predict(x, t, condition)
        key = (tuple(x.shape), model.weights.in_use)
        if key in known:
            found, work, rows = known[key]
            counting.work += work
            model.evaluations.add(rows)
            return found.new_empty(found.shape)
        before, rows = counting.work.copy(), model.evaluations.forward
        found = predict(x, t, condition)
        known[key] = found, counting.work - before, model.evaluations.forward - rows
        return found.clone()

    return remembered


def _first_tokens(model: Any, phases: Phases) -> Callable[..., Any]:
    """A language model's `rollout` that draws the first tokens only, into a whole cache."""
    rollout, hidden = model.rollout, model._hidden

    def first(prompt: Tensor, prompt_mask: Tensor, dynamics: Any, uniform: Tensor) -> Any:
        passes = list[Work]()

        def passed(*arguments: Any) -> Any:
            passes.append(phases.counting.work.copy())
            if len(passes) > TOKENS:
                raise _Drawn
            return hidden(*arguments)

        with mock.patch.object(model, "_hidden", passed):
            try:
                return rollout(prompt, prompt_mask, dynamics, uniform)
            except _Drawn:
                phases.token = (passes[-1] - passes[-2]) / len(prompt)
        shape, device = uniform.shape, prompt.device
        response = torch.zeros(shape, dtype=torch.long, device=device)
        mask = torch.ones(shape, dtype=torch.bool, device=device)
        ended = torch.ones(len(prompt), dtype=torch.bool, device=device)
        numbers = torch.zeros_like(uniform)
        return Tokens(prompt, prompt_mask, response, mask, ended, numbers, numbers.clone())

    return first


class _Drawn(Exception):
    """As many tokens were drawn as are counted."""


def show(config: Config) -> str:
    """A table of a run's phases, and its sums; seconds where the GPU is known."""
    found, gpu = count(config), gpu_of(config["hardware"])

    def seconds(work: Work) -> float:
        return 0.0 if gpu is None else seconds_on(gpu, work)

    rows = [["phase", "peak, GiB", "TFLOP", "moved, GB", "kernels", *["seconds"] * bool(gpu)]]
    for name in dict.fromkeys([*found.phases, *found.work]):
        work = found.work.get(name, no_work())
        peak = found.resident + found.phases.get(name, 0.0)
        cells = [f"{peak / GIB:.2f}", f"{flops_of(work) / 1e12:,.3g}", f"{work[MOVED] / 1e9:,.3g}"]
        cells += [f"{work[LAUNCHES]:,.0f}", *[two_digits(seconds(work))] * bool(gpu)]
        rows.append([name, *cells])
    lines = [f"{row[0]:<10}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in rows]
    lines += [
        f"network     {found.parameters:,} parameters, {found.trainable:,} trained",
        f"memory      {found.peak / GIB:.1f} GiB at most, {found.resident / GIB:.1f} all the time",
    ]
    if gpu is None:
        return "\n".join([*lines, "time        hardware.gpu=h100 or another names the GPU"])
    each, evaluation = sum(map(seconds, found.work.values())), seconds(found.evaluation)
    iterations, every = config["iterations"], config["evaluation"]["every"]
    evaluations, processes = 2 + ((iterations - 1) // every if every else 0), processes_of(config)
    hours = (iterations * each + evaluations * evaluation) * processes / 3600
    device = gpu.name if processes == 1 else f"each of {processes} {gpu.name}"
    lines.append(
        f"time        about {two_digits(each)} s an iteration on {device},"
        f" {two_digits(evaluation)} s an evaluation; {iterations} iterations {hours:,.1f} GPU-hours"
    )
    return "\n".join(lines)


def two_digits(number: float) -> str:
    """As many as a prediction is worth."""
    return f"{number:,.0f}" if number >= 9.5 else f"{number:.2g}"
