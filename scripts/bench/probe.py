"""Measurements that each process of a comparison makes of itself: seconds and peak memory."""

import json
import resource
import statistics
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from time import perf_counter, process_time
from typing import Any

PACKAGES = ["torch", "transformers"]

Seconds = Mapping[str, float]


def clocks() -> tuple[float, float]:
    """CPU time of all threads of this process, and wall time.

    On a busy machine the wall time grows, and the CPU time hardly.
    """
    return process_time(), perf_counter()


class Laps:
    """Seconds of each phase of each iteration by both clocks."""

    def __init__(self) -> None:
        self.iterations: list[dict[str, float]] = []
        self._now: dict[str, float] = {}
        self._at = clocks()

    def lap(self, phase: str) -> None:
        """End a phase, and name it."""
        began, self._at = self._at, clocks()
        cpu, wall = (now - then for now, then in zip(self._at, began, strict=True))
        self._now |= {phase: wall, f"{phase} cpu": cpu}

    def end(self, phase: str) -> None:
        """End the last phase of an iteration, and name it."""
        self.lap(phase)
        self.iterations.append(self._now)
        self._now = {}


def seconds(iteration: Seconds) -> tuple[float, float]:
    """CPU and wall seconds of all phases."""
    cpu = sum(spent for phase, spent in iteration.items() if phase.endswith(" cpu"))
    return cpu, sum(iteration.values()) - cpu


def job() -> dict[str, Any]:
    """The job of this process: a JSON object, its only argument."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found


def peak_gib() -> float:
    """Peak resident memory of the process, imports included, in GiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def report(
    library: str,
    release: str,
    iterations: Sequence[Seconds],
    *,
    packages: Sequence[str] = PACKAGES,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Print the figures as the last line of output; `more` adds some."""
    versions = {library: release} | {package: version(package) for package in packages}
    measured = {"versions": versions, "iterations": iterations, "peak_gib": peak_gib()}
    measured |= more or {}
    print(json.dumps(measured))


def median(iterations: Sequence[Seconds]) -> dict[str, float]:
    """Each phase's median over the iterations after the first, which is warm-up."""
    counted = iterations[1:] or iterations
    return {phase: statistics.median(i[phase] for i in counted) for phase in counted[0]}
