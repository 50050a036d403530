"""Trains the scorer of `reward=shapes_learned`, on samples of `zoo:tiny_sd3` and their scores.

    python scripts/zoo/shapes_scorer.py  # about five minutes on one thread

It sees few samples of an untrained generator, of training prompts only, each with its own prompt
and with others. So it is a proxy of `shapes` that holds near that generator and is exploited
far from it. Deterministic given the seed and the number of threads.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import StableDiffusion3Pipeline
from safetensors.torch import load_file, save_file
from torch import Tensor
from training import batches, cosine, step_optimizer

from rlfactory.model.pipelines.shipped import WEIGHTS, zoo_path
from rlfactory.prompts.base import Prompt
from rlfactory.prompts.shapes import ShapesPrompts
from rlfactory.reward.base import Samples
from rlfactory.reward.shapes import Shapes
from rlfactory.reward.shapes_learned import FILE, SceneScorer, fields, load_scorer

OUT = WEIGHTS / "shapes_scorer"
BATCH = 64
HELD_OUT = 384
OTHERS = 6  # other prompts that a picture is judged by
BRIGHTNESS, SHIFT = 24, 4  # augmentation: levels, pixels


@dataclass(frozen=True)
class Judged:
    """Pictures `[N, 3, H, W]` uint8, what was asked `[N, FIELDS]`, and their scores `[N]`."""

    images: Tensor
    asked: Tensor
    scores: Tensor


@torch.inference_mode()
def draw(prompts: list[Prompt], seed: int) -> Tensor:
    """A sample of `tiny_sd3` for each prompt, uint8: ten steps, no guidance."""
    pipe = StableDiffusion3Pipeline.from_pretrained(zoo_path("tiny_sd3"))
    pipe.set_progress_bar_config(disable=True)
    generator, parts = torch.Generator().manual_seed(seed), []
    for start in range(0, len(prompts), BATCH):
        texts = [prompt.text for prompt in prompts[start : start + BATCH]]
        drawn = pipe(
            texts,
            height=64,
            width=64,
            num_inference_steps=10,
            guidance_scale=1.0,
            max_sequence_length=16,
            generator=generator,
            output_type="np",
        ).images
        parts.append(torch.from_numpy((drawn * 255).round().astype(np.uint8)).permute(0, 3, 1, 2))
    return torch.cat(parts).contiguous()


def kept(path: Path, prompts: list[Prompt], seed: int) -> Tensor:
    """`draw`, kept on disk for another training."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({"images": draw(prompts, seed)}, path)
    return load_file(path)["images"]


def judge(images: Tensor, prompts: list[Prompt]) -> Judged:
    """Each picture with a prompt's fields and the score of `shapes`."""
    metadata = [prompt.metadata for prompt in prompts]
    samples = Samples([p.text for p in prompts], metadata, torch.arange(len(prompts)), images)
    asked = torch.stack([fields(m) for m in metadata])
    return Judged(images, asked, Shapes().score(samples)["shapes"])


def with_others(images: Tensor, prompts: list[Prompt]) -> Judged:
    """Each picture with its own prompt, and with those of the `OTHERS` pictures before it."""
    shifted = [judge(images, [*prompts[-i:], *prompts[:-i]]) for i in range(1, OTHERS + 1)]
    parts = [judge(images, prompts), *shifted]
    asked, scores = (torch.cat([getattr(p, key) for p in parts]) for key in ("asked", "scores"))
    return Judged(images.repeat(len(parts), 1, 1, 1), asked, scores)


def varied(images: Tensor, generator: torch.Generator) -> Tensor:
    """Pictures at another brightness, all shifted alike: neither changes what a prompt asks for."""
    levels = torch.randint(-BRIGHTNESS, BRIGHTNESS + 1, (len(images), 1, 1, 1), generator=generator)
    shift = torch.randint(-SHIFT, SHIFT + 1, (2,), generator=generator).tolist()
    moved = images.float().roll(shift, dims=(2, 3)) + levels
    return moved.clamp(0, 255)


def train(data: Judged, steps: int, seed: int) -> SceneScorer:
    """Cross-entropy with the scores as probabilities, by AdamW."""
    torch.manual_seed(seed)
    model = SceneScorer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    for step, rows, generator in batches(len(data.scores), BATCH, range(steps), seed):
        logits = model(varied(data.images[rows], generator), data.asked[rows])
        loss = F.binary_cross_entropy_with_logits(logits, data.scores[rows])
        step_optimizer(optimizer, loss, cosine(step, steps, 50))
        if (step + 1) % 250 == 0:
            print(f"{step + 1}/{steps} loss {float(loss):.3f}", flush=True)
    return model.eval()


def correlation(model: SceneScorer, data: Judged) -> float:
    """Pearson's, of predicted and true scores."""
    with torch.inference_mode():
        predicted = model(data.images, data.asked).sigmoid()
    return float(torch.corrcoef(torch.stack([predicted, data.scores]))[0, 1])


def write_card(out: Path, recipe: dict[str, int], found: dict[str, float]) -> None:
    """Write a README: what the network is, how it was trained, how well it predicts."""
    made = ", ".join(f"{name} {value:,}" for name, value in recipe.items())
    lines = [
        f"# {out.name}",
        "",
        "A small convolutional network that predicts the score of `reward=shapes` from a picture",
        "and the fields of its prompt, for `reward=shapes_learned`. Trained by",
        "`scripts/zoo/shapes_scorer.py` on samples of `tiny_sd3`. float16 on disk.",
        "",
        f"Made with: {made}.",
        "",
        "Correlation with the true score:",
        "",
        *(f"- {name}: {value:.3f}" for name, value in found.items()),
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--work", type=Path, default=Path("outputs/zoo/shapes_scorer"))
    parser.add_argument("--samples", type=int, default=2_400)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    source = ShapesPrompts()
    prompts = source.draw(args.samples, seed=args.seed, iteration=0)
    data = with_others(kept(args.work / "pictures.safetensors", prompts, args.seed), prompts)
    model = train(data, args.steps, args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    state = {name: value.half().contiguous() for name, value in model.state_dict().items()}
    save_file(state, args.out / FILE)
    unseen = source.held_out(HELD_OUT)
    pictures = kept(args.work / "held_out.safetensors", unseen, args.seed + 1)
    tests = {
        f"its {args.samples:,} training samples, {1 + OTHERS} prompts each": data,
        f"samples of {HELD_OUT} held-out prompts": judge(pictures, unseen),
    }
    saved = load_scorer(args.out, torch.device("cpu"))
    found = {name: correlation(saved, test) for name, test in tests.items()}
    recipe = {"seed": args.seed, "samples": args.samples, "steps": args.steps}
    write_card(args.out, recipe, found)
    print(found)


if __name__ == "__main__":
    main()
