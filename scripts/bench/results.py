"""Tables and figures of several runs, with their cost in network evaluations."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlfactory.report.plot import STYLE
from rlfactory.report.statistics import Change, paired_change
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import read
from rlfactory.run.scores import Scores
from rlfactory.utils.console import number

Runs = Mapping[str, Sequence[RunFolder]]
COLORS = [
    "#3465a4",
    "#d9822b",
    "#3a8f5c",
    "#a33b76",
    "#7a5ab5",
    "#b0463c",
    "#4a9fb5",
    "#8a7a2e",
    "#55575e",
]


def evaluated(folder: RunFolder) -> tuple[Scores, Scores]:
    """The scores before and after training."""
    files = sorted(folder.evaluations.glob("*.json"))
    return Scores.load(files[0]), Scores.load(files[-1])


def table(runs: Runs, score: str) -> list[str]:
    """A row for each name: final score and change per seed, with paired 95 % intervals."""
    lines = [
        f"| | {score}, before | after, a seed each | change, 95 % interval | diversity after"
        " | evaluations | on one core |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, folders in runs.items():
        pairs = [evaluated(folder) for folder in folders]
        found = [paired_change(old.values[score], new.values[score]) for old, new in pairs]
        cells = [
            name,
            ", ".join(number(change.before) for change in found),
            ", ".join(number(change.after) for change in found),
            "<br>".join(map(_change, found)),
            ", ".join(number(new.diversity) for _, new in pairs),
            f"{np.mean([_last(folder, 'nfe/total') for folder in folders]) / 1000:.0f} k",
            ", ".join(_minutes(folder) for folder in folders),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _change(change: Change) -> str:
    interval = f"{number(change.low, sign=True)} … {number(change.high, sign=True)}"
    shown = number(change.difference, sign=True)
    return f"{f'**{shown}**' if change.is_clear else shown} ({interval})"


def _last(folder: RunFolder, name: str) -> float:
    return float([r[name] for r in read(folder.metrics) if r.get(name) is not None][-1] or 0)


def _minutes(folder: RunFolder) -> str:
    seconds = float(read(folder.metrics)[-1]["time"] or 0)
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


def curve(folder: RunFolder, score: str, width: int = 5) -> tuple[NDArray[np.float64], ...]:
    """Network evaluations so far, and the training reward, a running mean of `width` iterations."""
    records = [r for r in read(folder.metrics) if r.get("nfe/total") is not None]
    cost = np.array([r["nfe/total"] for r in records], dtype=float)
    reward = np.array([r[f"reward/{score}/mean"] for r in records], dtype=float)
    padded = np.pad(reward, width // 2, mode="edge")
    return cost, np.convolve(padded, np.ones(width) / width, mode="valid")


def figure(runs: Runs, score: str, path: Path) -> None:
    """Plot the training reward against network evaluations: mean and range over seeds."""
    with mpl.rc_context(STYLE):
        made = Figure(figsize=(8, 4.2), dpi=150, layout="constrained")
        axes = made.add_subplot()
        for color, (name, folders) in zip(COLORS, runs.items(), strict=False):
            curves = [curve(folder, score) for folder in folders]
            length = min(len(cost) for cost, _ in curves)
            cost = curves[0][0][:length] / 1000
            rewards = np.stack([reward[:length] for _, reward in curves])
            axes.plot(cost, rewards.mean(0), color=color, label=name)
            axes.fill_between(cost, rewards.min(0), rewards.max(0), color=color, alpha=0.12, lw=0)
        axes.set_xlabel("thousand evaluations of the network, learning included")
        axes.set_ylabel("mean of five iterations and all seeds; band: all seeds")
        axes.set_title(f"training reward: {score}")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        FigureCanvasAgg(made).print_png(path)
