"""The leaderboard's control: the base model trained longer by supervision.

    OMP_NUM_THREADS=1 python scripts/bench/supervised.py --to FOLDER --seconds 90
    OMP_NUM_THREADS=1 python scripts/bench/supervised.py --to FOLDER --samples 20000

Either for the seconds that a run of the leaderboard trains on one core, or on as many samples as a
run makes forward passes; with its backward pass a sample takes three times as long as such a pass.

The transformer of `model=tiny_sd3` is trained further by its recipe's loss, rectified flow on newly
drawn scenes, none of which has a held-out caption. Each rate is tried with seed 100 and judged by
the loss on further scenes; at the best one each seed is trained, and the average of its weights is
evaluated as the leaderboard's runs are. FOLDER gets leaderboard.json, which
scripts/docs/leaderboard.py reads, and search.json with the loss of each rate. Seconds are those of
the processor, so that other programs do not matter; drawing and encoding the scenes, once for all
seeds, is not counted.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import StableDiffusion3Pipeline
from torch import Tensor

from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.report.leaderboard import ENTRIES_FILE, write_entries
from rlfactory.report.report import Entry
from rlfactory.run.atomic_write import write_text
from rlfactory.sweep.jobs import columns_of
from rlfactory.sweep.sweep_file import file_of, read_sheet

sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))

from autoencoder import encoded
from card import evaluate
from drawing import draw_scenes
from muon import adamw
from noising import Captioned, noisy_batches
from tiny_sd3 import OUT, SHIFT, flow_loss, tokenize
from training import step_optimizer

METHOD = "supervised"
SIZE = "tiny"
BATCH = 64
DECAY = 0.98
SEARCH_SEED = 100
SCENES_SEED = 1_000
"""Scenes that the recipe did not draw; those of the next seed judge the rates."""
HELD_OUT_BATCHES = 16


@dataclass(frozen=True)
class JudgedTask:
    """A task of the leaderboard: the words, reward and score of its evaluation, its target."""

    words: tuple[str, ...]
    reward: str
    score: str
    target: float


@dataclass(frozen=True)
class Budget:
    """The end of a training run: after `steps`, or after `seconds` if that is sooner."""

    steps: int
    seconds: float = math.inf


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-5, 1e-4, 3e-4])
    parser.add_argument("--scenes", type=int, default=20_000)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--samples", type=int, default=20_000)
    length.add_argument("--seconds", type=float, help="in place of a number of samples")
    args = parser.parse_args()
    steps = args.samples // BATCH
    budget = Budget(steps) if args.seconds is None else Budget(sys.maxsize, args.seconds)
    run(args.to, judged_tasks(), args.seeds, args.rates, args.scenes, budget)


def run(
    folder: Path,
    tasks: Mapping[str, JudgedTask],
    seeds: list[int],
    rates: list[float],
    scenes: int,
    budget: Budget,
) -> None:
    """Search the rate, train each seed with it, and write the entries of the leaderboard."""
    folder.mkdir(parents=True, exist_ok=True)
    data = captioned(base(), scenes, SCENES_SEED, folder)
    unseen = captioned(base(), scenes // 10, SCENES_SEED + 1, folder)
    losses = {
        rate: held_out_loss(trained(data, rate, SEARCH_SEED, budget), unseen) for rate in rates
    }
    best = min(rates, key=losses.__getitem__)
    found = {"before": held_out_loss(base(), unseen), **{f"{r:g}": x for r, x in losses.items()}}
    print(f"loss on further scenes: {found}", flush=True)
    write_text(folder / "search.json", json.dumps(found, indent=1) + "\n")
    before = scores(OUT, tasks)
    entries: list[Entry] = []
    for seed in seeds:
        trained(data, best, seed, budget).save_pretrained(folder / "pipeline")
        entries += entries_of(tasks, seed, before, scores(folder / "pipeline", tasks))
        print(*entries[-len(tasks) :], sep="\n", flush=True)
        write_entries(entries, folder / ENTRIES_FILE)


def judged_tasks() -> dict[str, JudgedTask]:
    """The tasks as the leaderboard's runs are evaluated on them."""
    sheet = read_sheet(file_of("leaderboard"))
    measures = {column.name: column.measure for column in columns_of(sheet, SIZE)}
    found = {}
    for name, task in sheet.tasks.items():
        words = next(line.overrides or [] for line in sheet.rows if line.task == name)
        reward = next(word for word in words if word.startswith("reward="))
        prompts = [word for word in words if word.startswith("prompts.")]
        score = measures[task.score].removeprefix("eval/")
        found[name] = JudgedTask(
            (*sheet.sizes[SIZE], *prompts), reward.removeprefix("reward="), score, task.target
        )
    return found


def base() -> StableDiffusion3Pipeline:
    """The untouched base model; only its transformer is to be trained."""
    pipe = StableDiffusion3Pipeline.from_pretrained(OUT, dtype=torch.float32)
    for encoder in (pipe.text_encoder, pipe.text_encoder_2, pipe.text_encoder_3):
        encoder.requires_grad_(False)
    return pipe


def trainable_scenes(count: int, seed: int) -> tuple[Tensor, list[str]]:
    """Those of `count` drawn scenes whose captions no run is evaluated on."""
    images, captions = draw_scenes(count, seed)
    kept = [i for i, caption in enumerate(captions) if not is_held_out(caption)]
    return images[kept], [captions[i] for i in kept]


def captioned(pipe: StableDiffusion3Pipeline, count: int, seed: int, folder: Path) -> Captioned:
    """The latents and captions of scenes to train on; the latents are kept in `folder`."""
    images, captions = trainable_scenes(count, seed)
    config = pipe.vae.config
    cache = folder / f"latents_{count}_{seed}.safetensors"
    latents = (encoded(pipe.vae, images, cache) - config.shift_factor) * config.scaling_factor
    return Captioned(latents, tokenize(pipe, captions), tokenize(pipe, [""]))


def trained(data: Captioned, rate: float, seed: int, budget: Budget) -> StableDiffusion3Pipeline:
    """The base model trained further at a constant rate; it has the average of the weights."""
    pipe = base()
    network = pipe.transformer
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(DECAY)
    )
    optimizer = adamw(network.parameters(), rate)
    began = time.process_time()
    for _, batch in noisy_batches(data, range(budget.steps), seed, SHIFT, BATCH):
        step_optimizer(optimizer, flow_loss(pipe, batch), 1.0)
        average.update_parameters(network)
        spent = time.process_time() - began
        if spent >= budget.seconds:
            break
    steps = int(average.n_averaged)
    print(f"seed {seed}, rate {rate:g}: {steps} steps in {spent:.0f} s", flush=True)
    network.load_state_dict(average.module.state_dict())
    return pipe


@torch.no_grad()
def held_out_loss(pipe: StableDiffusion3Pipeline, data: Captioned) -> float:
    """The loss on scenes that were not trained on, at the same times and noise for all."""
    drawn = noisy_batches(data, range(HELD_OUT_BATCHES), SEARCH_SEED, SHIFT, BATCH)
    return sum(float(flow_loss(pipe, batch)) for _, batch in drawn) / HELD_OUT_BATCHES


def scores(path: Path, tasks: Mapping[str, JudgedTask]) -> dict[str, float]:
    """The score of a saved pipeline on each task; tasks of the same prompts share samples."""
    means = {}
    for words in dict.fromkeys(task.words for task in tasks.values()):
        first, *others = dict.fromkeys(t.reward for t in tasks.values() if t.words == words)
        rewards = [f"reward={first}", f"eval_rewards.of=[{','.join(others)}]"]
        means[words] = evaluate(path, *words, *rewards).scores.means()
    return {name: means[task.words][task.score] for name, task in tasks.items()}


def entries_of(
    tasks: Mapping[str, JudgedTask], seed: int, before: dict[str, float], after: dict[str, float]
) -> list[Entry]:
    """A seed's entries of the leaderboard; a supervised run has no training reward."""
    return [
        Entry(METHOD, name, seed, first, last, (last - first) / (task.target - first), [], [])
        for name, task in tasks.items()
        for first, last in [(before[name], after[name])]
    ]


if __name__ == "__main__":
    main()
