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


class Laps:
    """Seconds of each phase of each iteration: wall time, and CPU time of all threads.

    On a busy machine the wall time grows, and the CPU time hardly.
    """

    def __init__(self) -> None:
        self.iterations: list[dict[str, float]] = []
        self._now: dict[str, float] = {}
        self._at = perf_counter(), process_time()

    def lap(self, phase: str) -> None:
        """End a phase, and name it."""
        began, self._at = self._at, (perf_counter(), process_time())
        wall, cpu = (now - then for now, then in zip(self._at, began, strict=True))
        self._now |= {phase: wall, f"{phase} cpu": cpu}

    def end(self, phase: str) -> None:
        """End the last phase of an iteration, and name it."""
        self.lap(phase)
        self.iterations.append(self._now)
        self._now = {}


class Clock:
    """Seconds of whole iterations: CPU time of all threads, or wall time."""

    def __init__(self, cpu_time: bool) -> None:
        self.read = process_time if cpu_time else perf_counter
        self.iterations: list[dict[str, float]] = []
        self.begin()

    def begin(self) -> None:
        """Start the first iteration."""
        self._at = self.read()

    def end(self) -> None:
        """End an iteration, and start the next one."""
        now = self.read()
        self.iterations.append({"iteration": now - self._at})
        self._at = now


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
