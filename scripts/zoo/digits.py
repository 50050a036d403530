"""Trains the two judges of `sweeps/hacking_digits.yaml` on real scans.

    python scripts/zoo/digits.py  # two minutes on one thread

The pictures are the 1,797 scans of scikit-learn's `load_digits` (UCI's optical recognition of
handwritten digits). The proxy sees one half of 1,400 of them, the gold judge, of another
architecture, the other half; 397 are held out. Deterministic given the seed and the number of
threads.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor
from training import batches, cosine, step_optimizer
from transformers import (
    PreTrainedModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
)

from rlfactory.model.pipelines.shipped import WEIGHTS

HALF = 700
SIZE = 32
"""Pixels of a picture's edge: a scan's 8, four times."""
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LABELS = dict(enumerate(WORDS))
SHIFT, NOISE = 2, 12  # augmentation of the gold judge's scans: pixels, levels


@cache
def scans() -> tuple[Tensor, Tensor]:
    """All scans as pictures `[1797, 3, 32, 32]` uint8 and their digits, shuffled once."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    grey = torch.from_numpy(found.images[order]).float()[:, None] * (255 / 16)
    large = F.interpolate(grey, SIZE, mode="bilinear").round().to(torch.uint8)
    return large.repeat(1, 3, 1, 1), torch.from_numpy(found.target[order])


def part(index: int) -> tuple[Tensor, Tensor]:
    """The proxy's half (0), the gold judge's (1), or the held-out scans (2)."""
    images, digits = scans()
    rows = slice(index * HALF, None if index == 2 else (index + 1) * HALF)
    return images[rows], digits[rows]


def proxy() -> tuple[PreTrainedModel, ViTImageProcessorPil]:
    """A small transformer that sees the scans' 8 by 8 cells."""
    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=8,
        patch_size=2,
        id2label=LABELS,
    )
    return ViTForImageClassification(config), processor(8)


def gold() -> tuple[PreTrainedModel, ViTImageProcessorPil]:
    """A small residual network that sees all pixels."""
    config = ResNetConfig(
        embedding_size=16,
        hidden_sizes=[32, 64],
        depths=[1, 1],
        layer_type="basic",
        id2label=LABELS,
    )
    return ResNetForImageClassification(config), processor(SIZE)


def processor(size: int) -> ViTImageProcessorPil:
    """Pictures as a judge sees them: box-filtered to `size`, with values from -1 to 1."""
    shape = {"height": size, "width": size}
    return ViTImageProcessorPil(size=shape, resample=4, image_mean=[0.5] * 3, image_std=[0.5] * 3)


def varied(images: Tensor, generator: torch.Generator) -> Tensor:
    """Pictures moved by up to `SHIFT` pixels, with noise, uint8."""
    dx, dy = torch.randint(-SHIFT, SHIFT + 1, (2,), generator=generator).tolist()
    moved = images.roll((dx, dy), (2, 3)).float()
    noise = NOISE * torch.randn(moved.shape, generator=generator)
    return (moved + noise).round().clamp(0, 255).to(torch.uint8)


def train(name: str, steps: int, seed: int) -> tuple[PreTrainedModel, ViTImageProcessorPil]:
    """Cross-entropy on one half by AdamW; augmentation for the gold judge alone."""
    torch.manual_seed(seed)
    model, look = {"proxy": proxy, "gold": gold}[name]()
    images, digits = part(0 if name == "proxy" else 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    model.train()
    for step, rows, generator in batches(len(images), 64, range(steps), seed):
        seen = images[rows] if name == "proxy" else varied(images[rows], generator)
        pixels = look([*seen], return_tensors="pt")["pixel_values"]
        loss = F.cross_entropy(model(pixels).logits, digits[rows])
        step_optimizer(optimizer, loss, cosine(step, steps, 50))
        if (step + 1) % 100 == 0:
            print(f"{name} {step + 1}/{steps} loss {loss.item():.3f}", flush=True)
    return model.eval(), look


@torch.inference_mode()
def logits(model: PreTrainedModel, look: ViTImageProcessorPil, index: int) -> Tensor:
    """A judge's logits of a part's scans."""
    images, _ = part(index)
    return model(look([*images], return_tensors="pt")["pixel_values"]).logits


def right(found: Tensor, index: int) -> float:
    """The share of a part's scans whose digit has the largest logit."""
    return float((found.argmax(1) == part(index)[1]).float().mean())


def write_card(out: Path, kind: str, recipe: Mapping[str, int], found: Sequence[float]) -> None:
    """Write a README: what the judge is, how it was trained, how often it is right."""
    parts = ("the proxy's half", "the gold judge's half", "held-out scans")
    lines = [
        f"# {out.name}",
        "",
        f"A small {kind} that names handwritten digits, by `scripts/zoo/digits.py` on {HALF}",
        "scans of scikit-learn's `load_digits` (Alpaydin and Kaynak, UCI, CC BY 4.0).",
        "",
        f"Made with: {', '.join(f'{name} {value:,}' for name, value in recipe.items())}.",
        "",
        "Named right:",
        "",
        *(f"- {name}: {value:.3f}" for name, value in zip(parts, found, strict=True)),
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for name, kind in (("proxy", "vision transformer"), ("gold", "residual network")):
        model, look = train(name, args.steps, args.seed)
        out = args.out / f"digits_{name}"
        model.save_pretrained(out)
        look.save_pretrained(out)
        seen = [logits(model, look, index) for index in range(3)]
        if name == "gold":
            save_file({"logits": seen[2]}, out / "held_out.safetensors")
        found = [right(own, index) for index, own in enumerate(seen)]
        write_card(out, kind, {"seed": args.seed, "steps": args.steps}, found)
        print(name, found)


if __name__ == "__main__":
    main()
