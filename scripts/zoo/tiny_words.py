"""Trains `zoo:tiny_words`: a small Stable Diffusion 3 that draws the word that a prompt quotes.

    python scripts/zoo/tiny_words.py  # twelve minutes on two threads; resumes after a stop

As `tiny_sd3.py`, on signs of three to six capitals, 96 by 48 pixels. Its text encoders read letter
by letter, and no word that the training draws is in `prompts=words`. It stops early on purpose: an
OCR engine reads some of what it draws. Deterministic given the seed and the fonts of matplotlib.
"""

import argparse
import string
from functools import cache, partial
from pathlib import Path

import matplotlib
import numpy as np
import torch
from autoencoder import build_vae, train_vae
from diffusers import StableDiffusion3Pipeline
from inherited import zoo_folder
from muon import Pair
from PIL import Image, ImageDraw, ImageFont
from tiny_sd3 import build_pipeline, captioned, flow_parts, save, train_flow
from tokenizers.normalizers import Lowercase
from torch import Tensor
from training import Leg, cosine

from rlfactory.prompts.signs import WORDS as SIGNS

FONTS = {"DejaVuSans": 18, "DejaVuSans-Bold": 16, "DejaVuSerif-Bold": 15, "DejaVuSansMono-Bold": 19}
"""Of matplotlib, and their sizes in pixels: capitals about as large as their cells."""
CELL = 16  # pixels from letter to letter: four latents, two tokens
WIDE, HIGH = 96, 48
SCHEDULE = 1_500  # steps after which the rate would be 0
CARD = """# tiny_words

A small `StableDiffusion3Pipeline` that draws words of three to six letters, 96x48 pixels, by
`scripts/zoo/tiny_words.py` on signs drawn in DejaVu's fonts. Prompts: the word in double quotes and
nothing else, as in "cabin"; guidance helps. float16 on disk.

Made with: {recipe}.
"""


@cache
def font(name: str) -> ImageFont.FreeTypeFont:
    path = Path(matplotlib.get_data_path(), "fonts/ttf", f"{name}.ttf")
    return ImageFont.truetype(path, FONTS[name])


def random_word(rng: np.random.Generator) -> str:
    """Three to six letters, in half of the words consonants and vowels in turn."""
    length = rng.integers(3, 7)
    if rng.random() < 0.5:
        return "".join(rng.choice([*string.ascii_lowercase], length))
    kinds = ("bcdfghjklmnpqrstvwxyz", "aeiou")
    first = rng.integers(2)
    return "".join(rng.choice([*kinds[(first + i) % 2]]) for i in range(length))


def draw_sign(word: str, rng: np.random.Generator) -> Image.Image:
    """The word in capitals, each in a cell; dark on light or light on dark."""
    light, dark = rng.integers(190, 256, 3), rng.integers(0, 90, 3)
    paper, ink = (light, dark) if rng.random() < 0.7 else (dark, light)
    picture = Image.new("RGB", (WIDE, HIGH), tuple(paper.tolist()))
    pen, name = ImageDraw.Draw(picture), rng.choice([*FONTS])
    x, y = CELL / 2 + rng.uniform(-1, 1), HIGH / 2 + rng.uniform(-3, 3)
    for i, letter in enumerate(word.upper()):
        pen.text((x + CELL * i, y), letter, tuple(ink.tolist()), font(name), anchor="mm")
    return picture


def draw_signs(count: int, seed: int) -> tuple[Tensor, list[str]]:
    """Signs `[N, 3, 48, 96]` uint8 and their captions, of no word of `prompts=words`."""
    left_out = {word.lower() for word in SIGNS}
    rng = np.random.default_rng(seed)
    images, captions = np.empty((count, HIGH, WIDE, 3), np.uint8), []
    while len(captions) < count:
        if (word := random_word(rng)) not in left_out:
            images[len(captions)] = draw_sign(word, rng)
            captions.append(f'"{word}"')
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), captions


def untrained(seed: int) -> StableDiffusion3Pipeline:
    """The pipeline, which spells every word out, whatever its case."""
    letters = [*string.ascii_lowercase, '"']
    pipe = build_pipeline(
        seed, letters, width=96, text_width=64, patch=2, channels=8, sample_size=32
    )
    pipe.tokenizer_3.backend_tokenizer.normalizer = Lowercase()
    pipe.vae = build_vae(
        (16, 32, 32), latent_channels=8, sample_size=HIGH, mid_block_add_attention=False
    )
    return pipe


def pieces(images: Tensor) -> Tensor:
    """Two cells each, `[3 N, 3, 32, 32]`: the autoencoder learns as much from a third of the
    pixels.
    """
    return images[:, :, 8:40].unfold(3, 32, 32).permute(0, 3, 1, 2, 4).flatten(0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=zoo_folder("tiny_words"))
    parser.add_argument("--work", type=Path, default=Path("outputs/zoo/tiny_words"))
    parser.add_argument("--signs", type=int, default=8_000)
    parser.add_argument("--vae-steps", type=int, default=3_000)
    parser.add_argument("--steps", type=int, default=1_200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    images, captions = draw_signs(args.signs, args.seed)
    pipe = untrained(args.seed)
    train_vae(pipe.vae, pieces(images), args.vae_steps, args.work, args.seed)
    data = captioned(pipe, images, captions, args.work)
    parts = flow_parts(pipe)
    pair = Pair(pipe.transformer.transformer_blocks, parts)
    rate = partial(cosine, steps=SCHEDULE, warmup=50)
    leg = Leg(args.work / "flow.pt", parts, pair, args.steps, rate, args.seed + 1)
    train_flow(pipe, leg, data, decay=0.99).use_average()
    save(pipe, args.out, captions[:2])
    recipe = {"seed": args.seed, "signs": args.signs, "autoencoder steps": args.vae_steps}
    recipe["Muon steps"] = args.steps
    told = ", ".join(f"{name} {value:,}" for name, value in recipe.items())
    (args.out / "README.md").write_text(CARD.format(recipe=told), encoding="utf-8")


if __name__ == "__main__":
    main()
