"""Does `reward=ocr` tell the right word from a wrong one? 200 words, drawn in Pillow's font.

python scripts/bench/ocr.py [rapidocr | paddleocr | easyocr]
"""

import sys
import time

import numpy as np
import torch

from rlfactory.reward.base import Samples
from rlfactory.reward.ocr import OCR
from rlfactory.reward.readers import drawn

WORDS = """
acorn airport almond anchor apple archer artist autumn bakery balcony bamboo banana barrel basket
beacon bishop blanket blossom bottle branch breeze bridge bronze bucket butter button cabbage
cactus camera candle canyon carpet castle cellar ceramic chapel cherry chimney circus citrus cliff
closed coffee comet compass copper coral cotton cradle crystal curtain danger dawn desert diamond
dinner dolphin donkey dragon drum eagle echo elbow ember engine evening exit fabric falcon feather
fence ferry fiddle flame forest fossil fountain friday galaxy garden garlic gentle ginger glacier
globe golden granite grape guitar hammer harbor harvest hazel helmet hidden honey hotel island
ivory jacket jasmine jewel jungle kettle kitchen kitten ladder lantern lemon library lily linen
lizard lobster london magnet mango maple marble market meadow melon mirror monday monkey morning
mountain museum mustard napkin needle nickel night notebook ocean office olive onion open orange
orchid oyster paddle palace paper parade parrot pebble pencil pepper piano picnic pigeon pillow
planet poetry pocket pumpkin puzzle quartz rabbit radio railway ribbon river rocket saddle salmon
school silver spider spring stone summer sunset teapot temple thunder ticket tiger timber tomato
tunnel turtle umbrella valley velvet village violin walnut water welcome willow window winter
wizard wonder yellow zebra zipper new_york san_diego hot_soup big_sale
"""


def main(engine: str = "rapidocr") -> None:
    """Print the mean score of the word that is drawn, and of the next word in the list."""
    words = [word.replace("_", " ").title() for word in WORDS.split()][-200:]
    reward = OCR(engine=engine)  # type: ignore[arg-type]
    blue_first = np.stack([drawn(word) for word in words])
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
