"""Trains the network of `reward=shapes_learned` to predict the score of shapes.

    python scripts/zoo/scene_scorer.py

Half of its images are drawn scenes, of the prompt itself or of another one; half are samples of
`zoo:tiny_sd3`. Labels are the scores of `reward=shapes`. Deterministic given the seed and the number
of threads; about four minutes on one core.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import StableDiffusion3Pipeline
from safetensors.torch import save_file
from torch import Tensor
from training import batches, cosine

from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.prompts.ops.scenes import (
    CATEGORIES,
    Scene,
    arrange,
    background,
    caption,
    is_held_out,
    render,
    requirements,
    sample_scene,
)
from rlfactory.reward.backbones.scene_scorer import SceneScorer, prompt_features
from rlfactory.reward.base import Samples
from rlfactory.reward.shapes import Shapes

OUT = Path(__file__).parents[2] / "src" / "rlfactory" / "model" / "zoo" / "weights" / "scene_scorer"


def prompts(count: int, rng: np.random.Generator) -> list[tuple[str, dict, Scene]]:
    """Captions that are not held out, their metadata and scenes, the categories in turn."""
    found = []
    while len(found) < count:
        scene = sample_scene(CATEGORIES[len(found) % len(CATEGORIES)], rng)
        text = caption(scene, rng)
        if not is_held_out(text):
            found.append((text, requirements(scene), scene))
    return found


def drawn(count: int, rng: np.random.Generator) -> tuple[Tensor, list[dict]]:
    """Rendered images `[N, 3, 64, 64]` and metadata; one in two shows another scene of the same
    category.
    """
    images, metadata = np.empty((count, 64, 64, 3), np.uint8), []
    for i, (_, meta, scene) in enumerate(prompts(count, rng)):
        shown = scene if rng.random() < 0.5 else sample_scene(scene.category, rng)
        images[i] = render(arrange(shown, rng), background(rng))
        metadata.append(meta)
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), metadata


def sampled(count: int, rng: np.random.Generator, size: int = 96) -> tuple[Tensor, list[dict]]:
    """Samples of `zoo:tiny_sd3` in 10 steps, `[N, 3, 64, 64]`, and metadata."""
    pipe = StableDiffusion3Pipeline.from_pretrained(zoo_path("tiny_sd3"))
    pipe.set_progress_bar_config(disable=True)
    asked, images = prompts(count, rng), []
    for start in range(0, count, size):
        texts = [text for text, *_ in asked[start : start + size]]
        generator = torch.Generator().manual_seed(start)
        options = {"num_inference_steps": 10, "guidance_scale": 1.0, "height": 64, "width": 64}
        made = pipe(texts, generator=generator, output_type="np", max_sequence_length=16, **options)
        images.append(torch.from_numpy((made.images * 255).round().astype(np.uint8)))
    return torch.cat(images).permute(0, 3, 1, 2).contiguous(), [meta for _, meta, _ in asked]


def gold(images: Tensor, metadata: list[dict]) -> Tensor:
    """The score `shapes` of each image."""
    blank = [""] * len(images)
    return Shapes().score(Samples(blank, metadata, torch.arange(len(images)), images))["shapes"]


def train(data: tuple[Tensor, Tensor, Tensor], steps: int, seed: int) -> SceneScorer:
    """AdamW on the cross-entropy of the scores, in minibatches of 128."""
    images, features, labels = data
    torch.manual_seed(seed)
    scorer = SceneScorer()
    optimizer = torch.optim.AdamW(scorer.parameters(), lr=3e-3, weight_decay=1e-2)
    for step, index, _ in batches(len(images), 128, range(steps), seed):
        logits = scorer(images[index], features[index])
        loss = F.binary_cross_entropy_with_logits(logits, labels[index])
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * cosine(step, steps, 50)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 250 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    return scorer.eval()


@torch.inference_mode()
def correlation(scorer: SceneScorer, images: Tensor, metadata: list[dict]) -> float:
    """Pearson's correlation of predictions with the score."""
    predicted = scorer(images, prompt_features(metadata)).sigmoid()
    return float(torch.corrcoef(torch.stack([predicted, gold(images, metadata)]))[0, 1])


def card(found: dict[str, float], made: str) -> str:
    """The README: what it is, how it was made, and how well it predicts."""
    rows = [f"| {name} | {value:.2f} |" for name, value in found.items()]
    return "\n".join(
        [
            "# scene_scorer",
            "",
            "The network of `reward=shapes_learned`: it predicts `shapes` from an image of 64 by 64",
            "pixels and the prompt's metadata. Made by `scripts/zoo/scene_scorer.py` from drawn",
            "scenes and samples of `tiny_sd3`, float16 on disk. It is meant to be wrong in places.",
            "",
            f"Made with: {made}.",
            "",
            "Correlation with `shapes`, on images that it was not trained on:",
            "",
            "| images | correlation |",
            "|---|---:|",
            *rows,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--images", type=int, default=3_072, help="drawn, and as many sampled")
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    held = {"drawn": drawn(600, rng), "sampled": sampled(384, rng)}
    parts = [drawn(args.images, rng), sampled(args.images, rng)]
    images = torch.cat([part[0] for part in parts])
    metadata = [meta for part in parts for meta in part[1]]
    data = images, prompt_features(metadata), gold(images, metadata)
    scorer = train(data, args.steps, args.seed)
    found = {name: correlation(scorer, *pair) for name, pair in held.items()}
    print(found)
    args.out.mkdir(parents=True, exist_ok=True)
    halves = {name: value.half().contiguous() for name, value in scorer.state_dict().items()}
    save_file(halves, args.out / "model.safetensors")
    made = f"seed {args.seed}, images 2 x {args.images:,}, steps {args.steps:,}"
    (args.out / "README.md").write_text(card(found, made), encoding="utf-8")


if __name__ == "__main__":
    main()
