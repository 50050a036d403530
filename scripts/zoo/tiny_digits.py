"""Trains `zoo:tiny_digits`: a small Stable Diffusion 3 that draws handwritten digits.

    python scripts/zoo/tiny_digits.py  # five minutes on one thread; resumes after a stop

As `tiny_sd3.py`, on the 1,400 scans of both judges of `digits.py`. It stops early on purpose: what
it draws can be told and can be bettered. Deterministic given the seed, and resumable from `--work`.
"""

import argparse
from functools import partial
from pathlib import Path

import torch
from autoencoder import build_vae, train_vae
from digits import SIZE, WORDS, part
from inherited import zoo_folder
from muon import adamw
from tiny_sd3 import build_pipeline, captioned, flow_parts, save, train_flow
from training import Leg, cosine

WIDTH = 64
SCHEDULE = 1_500  # steps after which the rate would be 0
CARD = """# tiny_digits

A small `StableDiffusion3Pipeline` that draws handwritten digits, 32x32 pixels, by
`scripts/zoo/tiny_digits.py` on 1,400 scans of scikit-learn's `load_digits` (Alpaydin and Kaynak,
UCI, CC BY 4.0). Prompts: "a zero" to "a nine", no guidance. float16 on disk.

Made with: {recipe}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=zoo_folder("tiny_digits"))
    parser.add_argument("--work", type=Path, default=Path("outputs/zoo/tiny_digits"))
    parser.add_argument("--vae-steps", type=int, default=1_500)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    images, digits = (torch.cat(pair) for pair in zip(part(0), part(1), strict=True))
    pipe = build_pipeline(args.seed, ["a", "an", *WORDS], WIDTH)
    pipe.vae = build_vae((16, 16, 32, 32), sample_size=SIZE)
    train_vae(pipe.vae, images, args.vae_steps, args.work, args.seed)
    captions = [f"{'an' if digit == 8 else 'a'} {WORDS[digit]}" for digit in digits]
    data = captioned(pipe, images, captions, args.work)
    parts = flow_parts(pipe)
    rate = partial(cosine, steps=SCHEDULE, warmup=100)
    path = args.work / "flow.pt"
    leg = Leg(path, parts, adamw(parts.parameters()), args.steps, rate, args.seed + 1)
    train_flow(pipe, leg, data).use_average()
    save(pipe, args.out, captions[:2])
    recipe = {"seed": args.seed, "autoencoder steps": args.vae_steps, "AdamW steps": args.steps}
    told = ", ".join(f"{name} {value:,}" for name, value in recipe.items())
    (args.out / "README.md").write_text(CARD.format(recipe=told), encoding="utf-8")


if __name__ == "__main__":
    main()
