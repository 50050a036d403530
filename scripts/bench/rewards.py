"""What rewards cost together, and how much of their time is hidden while samples are drawn.

    python scripts/bench/rewards.py
    python scripts/bench/rewards.py --samples 96 --batches 8

The first row is `combine` of three rewards over the sum of its parts, asked in turn. The others are
a reward that takes as long as sampling, by the real loop on tiny_sd3: the share of its time that
nobody waits for. One waits, as for a server or another device; one computes in a process of its
own, which takes a core that sampling leaves free.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter, sleep

import torch
from torch import Tensor

from rlfactory.build import budget, build
from rlfactory.isolated import Isolated
from rlfactory.overlap import Scorer
from rlfactory.parts import Silent
from rlfactory.prompts.shapes import ShapesPrompts
from rlfactory.request import planned
from rlfactory.reward.base import Reward, Samples, judge
from rlfactory.reward.combine import Combine
from rlfactory.reward.jpeg import Compressibility, Incompressibility, jpeg_kilobytes
from rlfactory.reward.shapes import Shapes
from rlfactory.trainer import Trainer


class Waits(Reward):
    """Takes `seconds` for each sample, and no core."""

    media = "images"
    main = "waits"

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """The position of a sample in its batch, `[B]`."""
        sleep(self.seconds * len(samples.prompts))
        return {"waits": torch.arange(len(samples.prompts)).float()}


class Computes(Reward):
    """Compresses each sample until `seconds` have passed."""

    media = "images"
    main = "computes"

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Kilobytes, `[B]`."""
        assert samples.images is not None
        end = perf_counter() + self.seconds * len(samples.prompts)
        sizes = jpeg_kilobytes(samples.images, 95)
        while perf_counter() < end:
            jpeg_kilobytes(samples.images, 95)
        return {"computes": sizes}


def seconds(work: Callable[[], object]) -> float:
    """How long a call takes."""
    begun = perf_counter()
    work()
    return perf_counter() - begun


def combined_over_parts(count: int, repeats: int) -> tuple[float, float, float]:
    """Seconds of the parts in turn and of their combination, and the ratio; medians of pairs."""
    parts: dict[str, Reward] = {
        "shapes": Shapes(),
        "compressibility": Compressibility(),
        "incompressibility": Incompressibility(quality=50),
    }
    whole = Combine(
        of=[*parts],
        parts=parts,
        normalise={"shapes": "group", "incompressibility": "running"},
        gates={"shapes": {"incompressibility": 0.1}},
        clips={"compressibility": [-5.0, 0.0]},
    )
    drawn = ShapesPrompts().draw(count, seed=0, iteration=0)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 255, (count, 3, 64, 64), dtype=torch.uint8, generator=generator)
    groups = torch.arange(count) // 12
    samples = Samples([p.text for p in drawn], [p.metadata for p in drawn], groups, images)

    def together() -> None:
        whole.normalised(whole.score(samples), groups)

    def in_turn() -> None:
        for part in parts.values():
            part.score(samples)

    pairs = [(seconds(in_turn), seconds(together)) for _ in range(repeats + 1)][1:]
    return (
        median(one for one, _ in pairs),
        median(other for _, other in pairs),
        median(other / one for one, other in pairs),
    )


def loop(batch: int, samples: int) -> Trainer:
    """The loop on tiny_sd3, without what comes before and after it."""
    words = [f"prompts_per_iteration={samples // 12}", f"sample_batch={batch}", "iterations=3"]
    config = planned("hardware=cpu", "hardware.threads=1", *words).config
    return Trainer(build(config), budget(config), Silent())


def iteration(trainer: Trainer, reward: Reward, background: bool) -> tuple[float, float]:
    """Seconds to sample, and then until there are scores, of an iteration without its learning."""
    trainer.parts = replace(trainer.parts, reward=reward, scorer=Scorer(background))
    gathering = trainer.parts.scorer.begin(partial(judge, reward), trainer.budget.group_size)
    begun = perf_counter()
    with gathering:
        rollout = trainer.sample(0, gathering.add)
        drawn = perf_counter()
        trainer.score(rollout, gathering.scores)
        return drawn - begun, perf_counter() - drawn


def hidden(trainer: Trainer, reward: Reward, repeats: int) -> tuple[float, float, float]:
    """Seconds that a reward adds to sampling, after it and in the background, and the share of them
    that is saved; medians of pairs. What the background takes from sampling counts as not hidden.
    """
    found = []
    for _ in range(repeats):
        sample, after = iteration(trainer, reward, background=False)
        added = sum(iteration(trainer, reward, background=True)) - sample
        found.append((after, added, 1 - added / after))
    first, second, share = (median(column) for column in zip(*found, strict=True))
    return first, second, share


def row(name: str, first: float, second: float, ratio: float, wanted: str) -> None:
    """A row of the table."""
    print(f"| {name} | {first:.2f} s | {second:.2f} s | {ratio:.3f} | {wanted} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=96)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    a = parser.parse_args()
    torch.set_num_threads(1)
    print("| what | apart | together | ratio | wanted |\n|---|---:|---:|---:|---|")
    row("combine of three / its parts", *combined_over_parts(a.samples, a.repeats), "<= 1.1")
    trainer = loop(a.samples // a.batches, a.samples)
    each = min(sum(iteration(trainer, Waits(), False)) for _ in range(3)) / a.samples
    recipe = {"_target_": "__main__.Computes", "seconds": each}
    judges = {"waits": Waits(each), "computes": Isolated(recipe, "reward", torch.device("cpu"))}
    for name, reward in judges.items():
        found = hidden(trainer, reward, a.repeats)
        wanted = ">= 0.7" if name == "waits" else ">= 0.7 with a core to itself"
        row(f"{name} as long as sampling, hidden", *found, wanted)


if __name__ == "__main__":
    main()
