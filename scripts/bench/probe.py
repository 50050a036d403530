"""What the processes of a comparison measure of themselves, each in the same way."""

import json
import resource
import statistics
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

PACKAGES = ["torch", "transformers"]

Seconds = Mapping[str, float]


def job() -> dict[str, Any]:
    """What this process was asked to do: a JSON object, its only argument."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found


def peak_gib() -> float:
    """The process's resident high-water mark, everything it imported included."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def report(library: str, release: str, iterations: Sequence[Seconds]) -> None:
    """The last line of what this process prints."""
    versions = {library: release} | {package: version(package) for package in PACKAGES}
    measured = {"versions": versions, "iterations": iterations, "peak_gib": peak_gib()}
    print(json.dumps(measured))


def median(iterations: Sequence[Seconds]) -> dict[str, float]:
    """Each phase's median over the iterations after the first, which warms up."""
    counted = iterations[1:] or iterations
    return {phase: statistics.median(i[phase] for i in counted) for phase in counted[0]}
