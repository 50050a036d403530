"""V-GRPO's likelihood surrogate, with and without its variance reductions: Figures 1 and 2.

    python scripts/bench/surrogate.py    # five minutes on one core
    python scripts/docs/surrogate.py     # the tables and figures of what it measured

On several rollouts of the small model that ships, before training:

- the coefficient of variation (deviation over mean) of a sample's denoising loss, within a group,
  averaged over groups, and over all samples;
- the mean and the variance over samples of the loss at each time;
- each sample's loss and the norm of its gradient.

All are stored in docs/reference/surrogate.json, a value or a list for each rollout.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.times import Times, UniformTimes
from rlfactory.algo.vgrpo import VGRPO
from rlfactory.batch import TrainingItems
from rlfactory.config.overrides import plan_from_words
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.run.atomic_write import write_text
from rlfactory.train.build import build

STORE = Path(__file__).parents[2] / "docs" / "reference" / "surrogate.json"
SETTINGS = {
    "full": (True, True, True),
    "own pairs": (False, True, True),
    "not stratified": (True, False, True),
    "not adaptive": (True, True, False),
    "naive": (False, False, False),
}
"""Whether noise is shared, times are stratified, the loss is weighted adaptively."""
COMPARED = ("naive", "full")
LOSSES = {"velocity": ("v", False), "x": ("x", False), "x, adaptive": ("x", True)}
"""What the error is of, and whether its square is divided by its mean magnitude."""
MICRO_BATCH = 96
COUNT = 4
"""Times of a sample, as published."""


class EvenTimes(Times):
    """The middles of `count` equal bins of [0, 1], for every sample."""

    def __init__(self, count: int) -> None:
        self.count, self.shared = count, "batch"

    def draw(self, uniform: Tensor, times: Tensor) -> Tensor:
        """`[B, count]`, rising; neither argument matters but for B."""
        del times
        return ((torch.arange(self.count) + 0.5) / self.count).expand(len(uniform), -1)


def make(shared: bool, stratified: bool, adaptive: bool, sigmas: Tensor) -> VGRPO:
    """V-GRPO with some of its variance reductions."""
    times = UniformTimes(count=COUNT, stratified=stratified, shared="group" if shared else "sample")
    kind = "x" if adaptive else "v"
    return VGRPO(
        GroupAdvantage(), times, sigmas, shared_noise=shared, adaptive=adaptive, prediction=kind
    )


def items_of(algo: VGRPO, model: ImageModel, rollout: Rollout, draw: int) -> TrainingItems:
    """The training items of a draw of times and noise."""
    return algo.training_items(rollout, model, seed=0, iteration=draw)


@torch.no_grad()
def losses(algo: VGRPO, model: ImageModel, items: TrainingItems) -> Tensor:
    """The loss of each sample at each of its times, `[B, T]`."""
    found = [algo.log_likelihoods(model, batch) for batch in items.split(MICRO_BATCH)]
    return -torch.cat(found).view(items.t.shape)


def variation(loss: Tensor, size: int) -> tuple[float, float]:
    """Standard deviation over mean: within groups of `size`, averaged, and over all samples."""
    groups = loss.view(-1, size)
    within = (groups.std(1) / groups.mean(1)).mean()
    return float(within), float(loss.std() / loss.mean())


def gradient_norms(
    algo: VGRPO, model: ImageModel, items: TrainingItems, parameters: Sequence[Tensor]
) -> tuple[list[float], list[float]]:
    """Each sample's loss, and the norm of its gradient."""
    values, norms = [], []
    for batch in items.split(items.t.shape[1]):
        loss = -algo.log_likelihoods(model, batch).mean()
        gradients = torch.autograd.grad(loss, parameters)
        norms.append(float(sum(g.double().pow(2).sum() for g in gradients)) ** 0.5)
        values.append(float(loss.detach()))
    return values, norms


def measured(
    model: ImageModel, rollout: Rollout, sigmas: Tensor, size: int, draws: int, times: int
) -> dict[str, Any]:
    """All that is measured on a rollout."""
    algos = {name: make(*on, sigmas) for name, on in SETTINGS.items()}
    found = {
        name: [
            variation(losses(algo, model, items_of(algo, model, rollout, draw)).mean(1), size)
            for draw in range(draws)
        ]
        for name, algo in algos.items()
    }
    variations = {n: [fmean(v) for v in zip(*own, strict=True)] for n, own in found.items()}
    parameters = [p for group in model.parameter_groups() for p in group["params"]]
    gradients = {}
    for name in COMPARED:
        items = items_of(algos[name], model, rollout, 0)
        gradients[name] = gradient_norms(algos[name], model, items, parameters)
    return {
        "variation": variations,
        "times": by_time(model, rollout, sigmas, times),
        "gradients": gradients,
    }


def by_time(
    model: ImageModel, rollout: Rollout, sigmas: Tensor, count: int
) -> dict[str, tuple[list[float], list[float]]]:
    """For each kind of loss its mean and its variance over samples, each with its own noise."""
    found = {}
    for name, (kind, adaptive) in LOSSES.items():
        algo = VGRPO(
            GroupAdvantage(),
            EvenTimes(count),
            sigmas,
            shared_noise=False,
            adaptive=adaptive,
            prediction=kind,
        )
        loss = losses(algo, model, items_of(algo, model, rollout, 0))
        found[name] = loss.mean(0).tolist(), loss.var(0).tolist()
    return found


def rollouts(count: int) -> Iterator[tuple[ImageModel, Rollout, Tensor, int]]:
    """Rollouts of the untrained model on other prompts each, with the schedule and group size."""
    config = plan_from_words("algo=vgrpo").config
    parts = build(config)
    size = config["group_size"]
    for iteration in range(count):
        prompts = parts.prompts.draw(config["prompts_per_iteration"], seed=0, iteration=iteration)
        groups = torch.arange(len(prompts)).repeat_interleave(size)
        rollout = parts.sampler.rollout(prompts, groups, seed=0, iteration=iteration)
        rollout = replace(rollout, advantage=torch.zeros(len(groups)))
        yield parts.model, rollout, parts.sampler.sigmas, size


def rounded(value: Any) -> Any:
    """Numbers to five digits, in whatever holds them."""
    if isinstance(value, Mapping):
        return {key: rounded(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(own) for own in value]
    return float(f"{value:.5g}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rollouts", type=int, default=6)
    parser.add_argument("--draws", type=int, default=2, help="draws of times and noise")
    parser.add_argument("--times", type=int, default=10, help="times of the mean and variance")
    parser.add_argument("--to", type=Path, default=STORE)
    a = parser.parse_args()
    found = []
    for model, rollout, sigmas, size in rollouts(a.rollouts):
        found.append(rounded(measured(model, rollout, sigmas, size, a.draws, a.times)))
        print(f"rollout {len(found)}: {found[-1]['variation']}", flush=True)
    lines = ",\n".join(json.dumps(own) for own in found)
    write_text(a.to, f'{{"draws": {a.draws}, "rollouts": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
