"""Scores of `reward=ocr` for right and wrong words: 200 words rendered in Pillow's font.

python scripts/bench/ocr.py [rapidocr | tesseract]
"""

import sys
import time

import numpy as np
import torch

from rlfactory.prompts.signs import WORDS
from rlfactory.reward.base import Samples
from rlfactory.reward.ocr import OCR, draw_word


def main(engine: str = "rapidocr") -> None:
    """Print the mean score of the rendered word, and of the next word in the list."""
    words = list(WORDS)[-200:]
    reward = OCR(engine=engine)  # type: ignore[arg-type]
    blue_first = np.stack([draw_word(word) for word in words])
    images = torch.from_numpy(blue_first).flip(-1).permute(0, 3, 1, 2)
    for what, wanted in (("right", words), ("wrong", words[1:] + words[:1])):
        prompts = [f'a sign that says "{word}"' for word in wanted]
        samples = Samples(prompts, [{}] * len(words), torch.arange(len(words)), images)
        begun = time.perf_counter()
        scores = reward.score(samples)["ocr"]
        seconds = (time.perf_counter() - begun) / len(words)
        print(
            f"{what} prompt: mean {scores.mean():.4f}, least {scores.min():.4f},"
            f" most {scores.max():.4f}; {1000 * seconds:.0f} ms a picture"
        )
    print(f"{len(words)} words of 256 x 256 pixels, {torch.get_num_threads()} thread(s)")


if __name__ == "__main__":
    main(*sys.argv[1:2])
