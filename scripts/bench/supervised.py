"""The leaderboard's control: the base model trained longer by supervision, for as many passes.

    python scripts/bench/supervised.py --to FOLDER --seed 0 --rate 1e-4

The transformer of `model=tiny_sd3` is trained further by its recipe's own loss, rectified flow on
drawn scenes with their captions, for as many samples as a run of the leaderboard makes forward
passes; its average is evaluated on the leaderboard's prompts and noise. Each of these samples also
costs a backward pass, so the control takes longer than a run. FOLDER gets leaderboard.json.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from diffusers import StableDiffusion3Pipeline
from torch import nn

from rlfactory.config.overrides import plan_from_words
from rlfactory.report.entry import ENTRIES_FILE, Entry, write_entries
from rlfactory.sweep.sweep_file import file_of, read_sheet
from rlfactory.train.build import build, build_evaluator
from rlfactory.train.components import NoProgress

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "zoo"))

BASE = ROOT / "src" / "rlfactory" / "model" / "zoo" / "weights" / "tiny_sd3"
METHOD = "supervised"
BATCH = 64
COMPOSITION = ("two_object", "position", "color_attr")


def main() -> None:
    from autoencoder import encoded
    from drawing import draw_scenes
    from noising import Captioned
    from tiny_sd3 import tokenize

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=1e-4, help="learning rate of AdamW")
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--scenes", type=int, default=20_000)
    args = parser.parse_args()
    args.to.mkdir(parents=True, exist_ok=True)
    pipe = StableDiffusion3Pipeline.from_pretrained(BASE, torch_dtype=torch.float32)
    # scenes that the recipe did not draw
    images, captions = draw_scenes(args.scenes, 1_000 + args.seed)
    latents = encoded(pipe.vae, images, args.to / "latents.safetensors")
    config = pipe.vae.config
    scaled = (latents - config.shift_factor) * config.scaling_factor
    data = Captioned(scaled, tokenize(pipe, captions), tokenize(pipe, [""]))
    before = scores(BASE)
    began = time.perf_counter()
    train(pipe, data, args.samples // BATCH, args.rate, args.seed)
    print(f"trained for {time.perf_counter() - began:.0f} s")
    pipe.save_pretrained(args.to / "pipeline")
    after = scores(args.to / "pipeline")
    nfe = [0.0, float(args.samples)]
    entries = [
        Entry(METHOD, task, args.seed, first, last, (last - first) / (1.0 - first), nfe, [])
        for (task, first), last in zip(before.items(), after.values(), strict=True)
    ]
    for entry in entries:
        print(f"{entry.task}: {entry.before:.3f} -> {entry.after:.3f}")
    write_entries(entries, args.to / ENTRIES_FILE)


def train(pipe: StableDiffusion3Pipeline, data: object, steps: int, rate: float, seed: int) -> None:
    """Train the transformer, and leave the average of its weights in it."""
    from noising import noisy_batches
    from tiny_sd3 import embed

    network = pipe.transformer.train()
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98)
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=1e-4)
    for _, batch in noisy_batches(data, range(steps), 1_000 + seed, shift=3.0, size=BATCH):
        with torch.no_grad():
            sequence, pooled = embed(pipe, *batch.words)
        velocity = network(
            batch.on_the_line,
            encoder_hidden_states=sequence,
            pooled_projections=pooled,
            timestep=1000 * batch.time,
            return_dict=False,
        )[0]
        loss = F.mse_loss(velocity, batch.eps - batch.x0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(network)
    network.load_state_dict(average.module.state_dict())


def scores(path: Path) -> dict[str, float]:
    """The strict score of a pipeline on the leaderboard's two tasks of prompt following."""
    common = [w for w in read_sheet(file_of("leaderboard")).sizes["tiny"]]
    words = [*common, f"model.path={path.absolute()}", "reward=shapes"]
    narrow = f"prompts.categories=[{','.join(COMPOSITION)}]"
    found = {}
    for task, more in (("shapes", []), ("composition", [narrow])):
        config = plan_from_words(*words, *more).config
        evaluation = build_evaluator(config, build(config), NoProgress())("policy")
        found[task] = evaluation.scores.means()["shapes_strict"]
    return found


if __name__ == "__main__":
    main()
