"""Pairs of images for `algo=diffusion_dpo_offline`: a model's own, ranked by an exact score.

    python scripts/examples/image_pairs.py TO    # write the images and TO/pairs.jsonl

Four images of each caption are drawn by the shipped Stable Diffusion 3, and scored by what is in
them; the best is chosen, the worst rejected. A caption whose images all score alike has no row.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import StableDiffusion3Pipeline
from PIL import Image

from rlfactory.model.pipelines.shipped import zoo_path
from rlfactory.prompts.base import Prompt
from rlfactory.prompts.shapes import ShapesPrompts
from rlfactory.reward.base import Samples
from rlfactory.reward.shapes import Shapes

GROUP, SIZE, AT_ONCE = 4, 64, 24
STEPS = {"num_inference_steps": 10, "guidance_scale": 1.0, "height": SIZE, "width": SIZE}


def groups(prompts: Sequence[Prompt], seed: int) -> Iterator[tuple[Prompt, np.ndarray]]:
    """Each prompt with its images, uint8 `[GROUP, SIZE, SIZE, 3]`."""
    pipeline = StableDiffusion3Pipeline.from_pretrained(zoo_path("tiny_sd3"))
    pipeline.set_progress_bar_config(disable=True)
    noise = torch.Generator().manual_seed(seed)
    for start in range(0, len(prompts), AT_ONCE):
        part = prompts[start : start + AT_ONCE]
        texts = [prompt.text for prompt in part]
        drawn = pipeline(
            texts, num_images_per_prompt=GROUP, generator=noise, output_type="np", **STEPS
        ).images
        images = (drawn * 255).round().astype(np.uint8)
        yield from zip(part, images.reshape(len(part), GROUP, SIZE, SIZE, 3), strict=True)


def rows(prompts: Sequence[Prompt], seed: int, to: Path) -> Iterator[dict[str, Any]]:
    """Save the images of each pair; the rows of the file."""
    reward = Shapes()
    for number, (prompt, images) in enumerate(groups(prompts, seed)):
        samples = Samples(
            prompts=[prompt.text] * GROUP,
            metadata=[prompt.metadata] * GROUP,
            groups=torch.zeros(GROUP, dtype=torch.int64),
            images=torch.from_numpy(images).permute(0, 3, 1, 2),
        )
        scores = reward.score(samples)["shapes"]
        if scores.min() == scores.max():
            continue
        pair = {"chosen": scores.argmax(), "rejected": scores.argmin()}
        names = {kind: f"images/{number:05d}_{kind}.png" for kind in pair}
        for kind, index in pair.items():
            Image.fromarray(images[index]).save(to / names[kind])
        yield {"prompt": prompt.text, **prompt.metadata, **names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("to", type=Path, help="a new folder")
    parser.add_argument("--count", type=int, default=720, help="captions")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    (a.to / "images").mkdir(parents=True)
    prompts = ShapesPrompts().draw(a.count, seed=a.seed, iteration=0)
    lines = [json.dumps(row) for row in rows(prompts, a.seed, a.to)]
    (a.to / "pairs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} pairs of {a.count} captions: {a.to / 'pairs.jsonl'}")


if __name__ == "__main__":
    main()
