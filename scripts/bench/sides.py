"""The sides of a comparison, which take turns, and the table of them that a bench prints.

What else the machine does slows all sides of a turn, so that a ratio is the median of those of the
turns: by CPU time, which a busy machine hardly changes, and by the wall.
"""

import argparse
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from probe import clocks, seconds
from processes import keep

CPU_INFO = Path("/proc/cpuinfo")


@dataclass
class Side:
    """CPU and wall seconds of each turn, and the peak of memory where it was measured."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    gib: float | None = None

    def add(self, cpu: float, wall: float) -> None:
        """Note the seconds of a turn."""
        self.cpu.append(round(float(cpu), 4))
        self.wall.append(round(float(wall), 4))


Sides = Mapping[str, Side]


def turns(
    works: Mapping[str, Callable[[], float | None]],
    rounds: int,
    clock: Callable[[], Iterable[float]] = clocks,
) -> dict[str, Side]:
    """The sides of `rounds` turns, after one for warm-up.

    A work that returns how much it did has the seconds for 1 of it.
    """
    sides = {name: Side() for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            begun = clock()
            amount = work() or 1.0
            spent = [(now - then) / amount for now, then in zip(clock(), begun, strict=True)]
            if turn:
                sides[name].add(*spent)
    return sides


def side_of(processes: Iterable[Mapping[str, Any]]) -> Side:
    """A side whose processes measured themselves: first iterations are warm-up."""
    side = Side(gib=round(min(one["peak_gib"] for one in processes), 3))
    for one in processes:
        for iteration in one["iterations"][1:]:
            side.add(*seconds(iteration))
    return side


def ratio(one: Side, other: Side, clock: str) -> float:
    """How many times as fast as `one` the `other` is, by the clock `cpu` or `wall`."""
    pairs = zip(getattr(one, clock), getattr(other, clock), strict=True)
    return median(before / after for before, after in pairs)


def table(comparisons: Mapping[str, Sides]) -> str:
    """A line for each side: medians of its seconds, and how many times as fast as the first."""
    lines = ["| | CPU s | | wall s | | GiB |", "|---|---:|---:|---:|---:|---:|"]
    for what, sides in comparisons.items():
        first = next(iter(sides.values()))
        for name, side in sides.items():
            cells = [f"{what}: {name}"]
            for clock in ("cpu", "wall"):
                times = ratio(first, side, clock)
                cells += [f"{median(getattr(side, clock)):.3g}", f"{times:.2f} ×"]
            cells.append("" if side.gib is None else f"{side.gib:.2f}")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """What a figure is to be read beside: the load before, the processor, the code."""
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    head = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "load": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
        "processor": next(iter(names), platform.processor()),
        "torch": version("torch"),
        "commit": head,
    }


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with what every comparison is asked."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    return made


def finish(
    asked: argparse.Namespace,
    began: Mapping[str, Any],
    comparisons: Mapping[str, Sides],
    **more: Any,
) -> None:
    """Print the table, and write what `--json` asks for."""
    print(f"load of {began['cores']} cores before: {began['load']}")
    print(table(comparisons), flush=True)
    written = {
        what: {n: asdict(s) for n, s in sides.items()} for what, sides in comparisons.items()
    }
    keep(asked, machine=began, comparisons=written, **more)
