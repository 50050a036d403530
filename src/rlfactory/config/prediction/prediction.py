"""Seconds of an iteration by phase, and GPU-hours of a run, in the plan's words."""

from collections.abc import Mapping
from dataclasses import dataclass

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.memory.sharding import processes_of
from rlfactory.config.prediction.devices import gpu_of
from rlfactory.config.prediction.phases import IterationWork, Passes, iteration_work
from rlfactory.config.prediction.work import Speeds

NAMES = {"scoring": "rewards"}
"""What the plan calls a phase."""


@dataclass(frozen=True)
class Prediction:
    """Seconds of one process.

    Attributes:
        phases: of an iteration, by phase.
        evaluation: of one evaluation.
    """

    phases: Mapping[str, float]
    evaluation: float

    @property
    def iteration(self) -> float:
        """Seconds of an iteration."""
        return sum(self.phases.values())

    def run(self, iterations: int, every: int) -> float:
        """Seconds of a run, with the evaluations before it, after it and every so many iterations.

        Without loading, compilation, checkpoints and previews.
        """
        between = (iterations - 1) // every if every else 0
        return iterations * self.iteration + (2 + between) * self.evaluation


def predict(work: IterationWork, speeds: Speeds, *, scored: float = 0.0) -> Prediction:
    """The seconds that a device needs for the work of a run.

    Args:
        scored: seconds of the host for each sample, by rewards that have no network.
    """
    phases = {name: _seconds(passes, speeds) for name, passes in work.phases.items()}
    phases["scoring"] += work.samples * scored
    return Prediction(phases, _seconds(work.evaluation, speeds) + work.evaluated * scored)


def _seconds(passes: Passes, speeds: Speeds) -> float:
    return sum(count * speeds.seconds(work) for count, work in passes)


def describe_time(config: Config, traits: Traits) -> str | None:
    """The prediction in words; None where no GPU is named or found, or the network is not known.

    Rewards that run on the host, such as compressibility, and by a server are not counted.
    """
    gpu = gpu_of(config["hardware"])
    work = iteration_work(config, traits) if gpu is not None else None
    if gpu is None or work is None:
        return None
    found = predict(work, Speeds.of(gpu))
    parts = [
        f"{NAMES.get(name, name)} {format_seconds(seconds)}"
        for name, seconds in found.phases.items()
        if seconds >= 0.005 * found.iteration
    ]
    count, iterations = processes_of(config), config["iterations"]
    hours = found.run(iterations, config["evaluation"]["every"]) * count / 3600
    where = f"one {gpu.name}" if count == 1 else f"each of {count} {gpu.name}"
    return (
        f"about {format_seconds(found.iteration)} s an iteration on {where} ({', '.join(parts)}),"
        f" {format_seconds(found.evaluation)} s an evaluation;"
        f" {iterations} iterations {hours:.{1 if hours < 100 else 0}f} GPU-hours"
    )


def format_seconds(seconds: float) -> str:
    """Two digits, as many as a prediction is worth."""
    return f"{seconds:.0f}" if seconds >= 9.5 else f"{seconds:.2g}"
