"""What the processes of a comparison measure of themselves, each in the same way."""

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
    """Seconds of each phase of each iteration: by the wall, and of all the process's threads.

    A busy machine takes longer by the wall, and hardly more of its processors.
    """

    def __init__(self) -> None:
        self.iterations: list[dict[str, float]] = []
        self._now: dict[str, float] = {}
        self._at = perf_counter(), process_time()

    def lap(self, phase: str) -> None:
        """What ends here was that phase."""
        began, self._at = self._at, (perf_counter(), process_time())
        wall, cpu = (now - then for now, then in zip(self._at, began, strict=True))
        self._now |= {phase: wall, f"{phase} cpu": cpu}

    def end(self, phase: str) -> None:
        """So was that, and the iteration has ended."""
        self.lap(phase)
        self.iterations.append(self._now)
        self._now = {}


def job() -> dict[str, Any]:
    """What this process was asked to do: a JSON object, its only argument."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found


def peak_gib() -> float:
    """The process's resident high-water mark, everything it imported included."""
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
    """The last line of what this process prints; `more` is measured besides."""
    versions = {library: release} | {package: version(package) for package in packages}
    measured = {"versions": versions, "iterations": iterations, "peak_gib": peak_gib()}
    measured |= more or {}
    print(json.dumps(measured))


def median(iterations: Sequence[Seconds]) -> dict[str, float]:
    """Each phase's median over the iterations after the first, which warms up."""
    counted = iterations[1:] or iterations
    return {phase: statistics.median(i[phase] for i in counted) for phase in counted[0]}
