"""The cost of combined rewards, and how much of it background scoring hides while sampling.

    python scripts/bench/rewards.py
    python scripts/bench/rewards.py --samples 96 --batches 8

The first row is `combine` of three rewards over the sum of its parts. The others run a reward that
takes as long as sampling in the real loop on tiny_sd3, and give the share of its time that is
hidden. One sleeps, as if it waited for a server or another device; one computes in a process of its
own, on a core that sampling does not use.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter, sleep

import torch
from torch import Tensor

from rlfactory.config.overrides import plan_from_words
from rlfactory.prompts.shapes import ShapesPrompts
from rlfactory.reward.base import Reward, Samples, score_checked
from rlfactory.reward.combine import Combine
from rlfactory.reward.jpeg import Compressibility, Incompressibility, jpeg_kilobytes
from rlfactory.reward.shapes import Shapes
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import NoProgress
from rlfactory.train.scoring.async_scorer import Scorer
from rlfactory.train.scoring.subprocess_reward import SubprocessReward
from rlfactory.train.trainer import Trainer


class Waits(Reward):
    """Sleeps for `seconds` per sample."""

    media = "images"
    main = "waits"

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """The position of a sample in its batch, `[B]`."""
        sleep(self.seconds * len(samples.prompts))
        return {"waits": torch.arange(len(samples.prompts)).float()}


class Computes(Reward):
    """Computes (compresses) for `seconds` per sample."""

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
    """The wall time of a call."""
    begun = perf_counter()
    work()
    return perf_counter() - begun


def combined_over_parts(count: int, repeats: int) -> tuple[float, float, float]:
    """Seconds of the parts, of their combination, and the ratio; medians of pairs."""
    parts: dict[str, Reward] = {
        "shapes": Shapes(),
        "compressibility": Compressibility(),
        "incompressibility": Incompressibility(quality=50),
    }
    whole = Combine(
        of=[*parts],
        parts=parts,
        normalise={"shapes": "group"},
        gates={"shapes": {"incompressibility": 0.1}},
        clips={"compressibility": [-5.0, 0.0]},
    )
    drawn = ShapesPrompts().draw(count, seed=0, iteration=0)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 255, (count, 3, 64, 64), dtype=torch.uint8, generator=generator)
    groups = torch.arange(count) // 12
    samples = Samples([p.text for p in drawn], [p.metadata for p in drawn], groups, images)

    def together() -> None:
        whole.normalise(whole.score(samples), groups)

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
    """The trainer on tiny_sd3, without a run folder."""
    words = [f"prompts_per_iteration={samples // 12}", f"sample_batch={batch}", "iterations=3"]
    config = plan_from_words("hardware=cpu", "hardware.threads=1", *words).config
    return Trainer(build(config), training_budget(config), NoProgress())


def iteration(trainer: Trainer, reward: Reward, background: bool) -> tuple[float, float]:
    """Seconds to sample, and then until there are scores, of an iteration without its learning."""
    trainer.components = replace(trainer.components, reward=reward, scorer=Scorer(background))
    gathering = trainer.components.scorer.begin(
        partial(score_checked, reward), trainer.budget.group_size
    )
    begun = perf_counter()
    with gathering as pending:
        rollout = trainer.sample(0, pending.add)
        drawn = perf_counter()
        trainer.score(rollout, pending.scores)
        return drawn - begun, perf_counter() - drawn


def hidden(trainer: Trainer, reward: Reward, repeats: int) -> tuple[float, float, float]:
    """Seconds that a reward adds to sampling, in the foreground and in the background, and the
    share that is hidden; medians of pairs. Slower sampling counts as not hidden.
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
    judges = {
        "waits": Waits(each),
        "computes": SubprocessReward(recipe, "reward", torch.device("cpu")),
    }
    for name, reward in judges.items():
        found = hidden(trainer, reward, a.repeats)
        wanted = ">= 0.7" if name == "waits" else ">= 0.7 with a core to itself"
        row(f"{name} as long as sampling, hidden", *found, wanted)


if __name__ == "__main__":
    main()
