"""How far to trust the reward `shapes`: its verdict on fresh, on worn and on wrong scenes.

python scripts/validate_shapes.py                # 2,000 scenes of each category, a few minutes
python scripts/validate_shapes.py --scenes 200   # a rougher table
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter

from rlfactory.prompts.ops.scenes import (
    CATEGORIES,
    COLORS,
    SHAPES,
    SIZE,
    Category,
    Scene,
    arrange,
    background,
    render,
    requirements,
    sample_scene,
)
from rlfactory.reward.base import Samples
from rlfactory.reward.shapes import Shapes

Picture = NDArray[np.uint8]
OPPOSITE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
PAIRS = ("position", "color_attr")
COLORED = ("colors", *PAIRS)


def truth(scene: Scene, rng: np.random.Generator) -> Picture:
    return render(arrange(scene, rng), background(rng))


def wrong_count(scene: Scene, rng: np.random.Generator) -> Picture:
    """One object more where there is room, otherwise one less."""
    objects = arrange(scene, rng)
    for _ in range(200):
        x, y = rng.uniform(9, SIZE - 9, 2)
        if all(max(abs(o.x - x), abs(o.y - y)) > o.radius + 10 for o in objects):
            return render([*objects, replace(objects[0], x=x, y=y, radius=7.0)], background(rng))
    return render(objects[1:], background(rng))


def wrong_color(scene: Scene, rng: np.random.Generator) -> Picture:
    first, *rest = arrange(scene, rng)
    others = [color for color in COLORS if color != first.color]
    return render([replace(first, color=str(rng.choice(others))), *rest], background(rng))


def wrong_shape(scene: Scene, rng: np.random.Generator) -> Picture:
    first, *rest = arrange(scene, rng)
    others = [shape for shape in SHAPES if shape not in {clause.shape for clause in scene.clauses}]
    return render([replace(first, shape=str(rng.choice(others))), *rest], background(rng))


def wrong_place(scene: Scene, rng: np.random.Generator) -> Picture:
    relation = OPPOSITE[str(scene.relation)]
    return truth(replace(scene, relation=relation), rng)


def swapped_attributes(scene: Scene, rng: np.random.Generator) -> Picture:
    first, second = arrange(scene, rng)
    objects = [replace(first, color=second.color), replace(second, color=first.color)]
    return render(objects, background(rng))


def empty(scene: Scene, rng: np.random.Generator) -> Picture:
    return render([], background(rng))


def noise(scene: Scene, rng: np.random.Generator) -> Picture:
    return rng.integers(0, 256, (SIZE, SIZE, 3), np.uint8)


def touching(scene: Scene, rng: np.random.Generator) -> Picture:
    """The scene's two objects moved together until their boxes meet."""
    first, second = arrange(scene, rng)
    dx, dy = first.x - second.x, first.y - second.y
    part = (first.radius + second.radius) / max(abs(dx), abs(dy))
    moved = replace(first, x=second.x + dx * part, y=second.y + dy * part)
    return render([moved, second], background(rng))


def blurred(scene: Scene, rng: np.random.Generator) -> Picture:
    return gaussian_filter(truth(scene, rng), (0.7, 0.7, 0))


def noisy(scene: Scene, rng: np.random.Generator) -> Picture:
    picture = truth(scene, rng)
    return (picture + rng.normal(0, 6, picture.shape)).round().clip(0, 255).astype(np.uint8)


def compressed(scene: Scene, rng: np.random.Generator) -> Picture:
    file = BytesIO()
    Image.fromarray(truth(scene, rng)).save(file, "JPEG", quality=80)
    return np.asarray(Image.open(file))


Make = Callable[[Scene, np.random.Generator], Picture]
RIGHT: dict[str, tuple[Make, tuple[Category, ...]]] = {"ground truth": (truth, CATEGORIES)}
WORN: dict[str, tuple[Make, tuple[Category, ...]]] = {
    "blur 0.7 px": (blurred, CATEGORIES),
    "noise 6/255": (noisy, CATEGORIES),
    "JPEG 80": (compressed, CATEGORIES),
}
WRONG: dict[str, tuple[Make, tuple[Category, ...]]] = {
    "wrong count": (wrong_count, CATEGORIES),
    "wrong colour": (wrong_color, COLORED),
    "wrong shape": (wrong_shape, CATEGORIES),
    "wrong place": (wrong_place, ("position",)),
    "swapped attributes": (swapped_attributes, PAIRS),
    "empty": (empty, CATEGORIES),
    "noise": (noise, CATEGORIES),
}


def scores(
    make: Make, category: Category, count: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Soft and strict scores `[count]` of fresh pictures of a category, fixed by the seed."""
    rng = np.random.default_rng([seed, CATEGORIES.index(category)])
    scenes = [sample_scene(category, rng) for _ in range(count)]
    soft, strict = [], []
    for chunk in _chunks(scenes, 250):
        pictures = np.stack([make(scene, rng) for scene in chunk])
        found = Shapes().score(
            Samples(
                prompts=[""] * len(chunk),
                metadata=[requirements(scene) for scene in chunk],
                groups=torch.arange(len(chunk)),
                images=torch.from_numpy(pictures).permute(0, 3, 1, 2),
            )
        )
        soft.append(found["shapes"].numpy())
        strict.append(found["shapes_strict"].numpy())
    return np.concatenate(soft), np.concatenate(strict)


def _chunks(scenes: list[Scene], size: int) -> Iterator[list[Scene]]:
    for start in range(0, len(scenes), size):
        yield scenes[start : start + size]


def agreement(
    make: Make, category: Category, right: bool, count: int, seed: int
) -> tuple[float, float]:
    """Share of pictures whose soft and strict score are 1, if that is right, or below 1 if not."""
    soft, strict = scores(make, category, count, seed)
    return float(((soft == 1) == right).mean()), float(((strict == 1) == right).mean())


def milliseconds(count: int = 960, batch: int = 96) -> float:
    """Processor time to score one picture, on one thread, in batches as a run has them."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    scenes = [sample_scene(CATEGORIES[i % len(CATEGORIES)], rng) for i in range(batch)]
    images = torch.from_numpy(np.stack([truth(s, rng) for s in scenes])).permute(0, 3, 1, 2)
    wanted = [requirements(scene) for scene in scenes]
    samples = Samples([""] * batch, wanted, torch.arange(batch), images.contiguous())
    reward = Shapes()
    reward.score(samples)
    started = time.process_time()
    for _ in range(count // batch):
        reward.score(samples)
    return (time.process_time() - started) / count * 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", type=int, default=2000, help="of each category")
    parser.add_argument("--seed", type=int, default=1_000)
    args = parser.parse_args()
    print("| pictures | should score | " + " | ".join(CATEGORIES) + " | all, soft | all, strict |")
    print("|---" * (len(CATEGORIES) + 4) + "|")
    for table, right in ((RIGHT, True), (WORN, True), (WRONG, False)):
        for name, (make, categories) in table.items():
            shares = {c: agreement(make, c, right, args.scenes, args.seed) for c in categories}
            cells = [f"{100 * min(shares[c]):.2f}" if c in shares else "" for c in CATEGORIES]
            cells += [f"{100 * share:.2f}" for share in np.mean(list(shares.values()), axis=0)]
            print(f"| {name} | {'1' if right else '< 1'} | " + " | ".join(cells) + " |", flush=True)
    print(f"\n{milliseconds():.2f} ms of one processor for each picture, in batches of 96")


if __name__ == "__main__":
    main()
