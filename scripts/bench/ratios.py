"""The distribution of likelihood ratios after several updates: Flow-GRPO's and GRPO-Guard's.

    python scripts/bench/ratios.py ratios.png

The policy is trained on one rollout with Flow-GRPO's loss. Then the steps of another rollout of the
same old policy are replayed: the plain log-ratio has a negative mean over the old policy's samples,
so that the clip at 1 + c acts less often than the one at 1 - c; the guarded one is centred. Prints
means and standard deviations for each step, and plots the histograms.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from rlfactory.algo.grpo import GRPO
from rlfactory.algo.grpo_guard import guarded_log_ratio
from rlfactory.algo.ops.step_replay import replay_step
from rlfactory.config.overrides import plan_from_words
from rlfactory.report.plot import STYLE
from rlfactory.rollout import Rollout
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import Components, NoProgress
from rlfactory.train.sampling.image_sampler import ImageSampler
from rlfactory.train.trainer import Trainer
from rlfactory.utils.pytree import require

NAMES = ("Flow-GRPO", "GRPO-Guard")
COLORS = ("#3465a4", "#d9822b")


def trained(updates: int) -> tuple[Components, Rollout]:
    """A policy after that many updates on one rollout, and another rollout of the old policy."""
    words = ["algo=grpo", "dynamics.noise_level=0.7", "updates_per_iteration=4"]
    words += [f"epochs={-(-updates // 4)}", "prompts_per_iteration=32"]
    config = plan_from_words(*words).config
    parts = build(config)
    assert isinstance(parts.sampler, ImageSampler)
    assert parts.sampler.transitions is not None
    parts.sampler.transitions = replace(parts.sampler.transitions, mean=True)
    trainer = Trainer(parts, training_budget(config), NoProgress())
    (learned, _), (other, _) = (trainer.score(trainer.sample(i)) for i in range(2))
    trainer.learner.learn(learned, 0)
    return parts, other


@torch.no_grad()
def log_ratios(parts: Components, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Plain and guarded log-ratios, `[B, T]`."""
    algo = parts.algo
    assert isinstance(algo, GRPO)
    plain, guarded = [], []
    for batch in algo.training_items(rollout, parts.model, seed=0, iteration=0).split(96):
        taken = batch.require_replayed()
        _, step, log_prob = replay_step(parts.model, batch, algo.dynamics)
        plain.append(log_prob - taken.log_prob)
        mean_old = require(taken.mean, "means")
        guarded.append(guarded_log_ratio(taken.next, step.mean, mean_old, step.std).float())
    each = batch.items_per_sample
    return torch.cat(plain).view(-1, each), torch.cat(guarded).view(-1, each)


def draw(found: tuple[Tensor, Tensor], path: Path) -> None:
    """Plot a panel for each step: both ratios in units of their deviation, with zero and means."""
    steps = found[0].shape[1]
    with mpl.rc_context(STYLE):
        made = Figure(figsize=(8, 2.8), dpi=150, layout="constrained")
        panels = made.subplots(1, steps, sharey=True)
        for step, axes in enumerate(panels):
            for name, color, values in zip(NAMES, COLORS, found, strict=True):
                column = values[:, step] / values[:, step].std()
                bins = torch.linspace(-3.5, 3.5, 29).tolist()
                axes.hist(column.tolist(), bins=bins, color=color, alpha=0.4, label=name)
                axes.axvline(float(column.mean()), color=color, lw=2)
            axes.axvline(0, color="#222228", lw=1, ls=":")
            axes.set_title(f"step {step}")
        panels[0].set_ylabel("steps replayed")
        panels[steps // 2].set_xlabel("log-ratio, new over old, in deviations")
        panels[-1].legend(loc="upper right")
        FigureCanvasAgg(made).print_png(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="the image to write")
    parser.add_argument("--updates", type=int, default=16)
    a = parser.parse_args()
    found = log_ratios(*trained(a.updates))
    print("| step | " + " | ".join(f"{name}, mean | deviation" for name in NAMES) + " |")
    print("|---|" + "---:|" * 4)
    for step in range(found[0].shape[1]):
        cells = [
            f"{1e4 * float(statistic):+.3f}"
            for values in found
            for statistic in (values[:, step].mean(), values[:, step].std())
        ]
        print(f"| {step} | {' | '.join(cells)} |")
    draw(found, a.path)


if __name__ == "__main__":
    main()
