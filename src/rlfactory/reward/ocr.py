"""Is the word that the prompt quotes written in the picture?"""

import logging
from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, RewardError, Samples, pictures
from rlfactory.reward.readers import Picture, reader_of

log = logging.getLogger(__name__)


def quoted(prompt: str) -> str | None:
    """What stands between a prompt's first two straight double quotes; None without two."""
    parts = prompt.split('"', 2)
    return parts[1] if len(parts) == 3 else None


def normalised(text: str) -> str:
    """In lower case, without white space."""
    return "".join(text.split()).lower()


def distance(a: str, b: str) -> int:
    """Levenshtein's: how many characters must be put in, left out or changed."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, start=1):
        corner, row[0] = row[0], i
        for j, right in enumerate(b, start=1):
            best = min(row[j] + 1, row[j - 1] + 1, corner + (left != right))
            corner, row[j] = row[j], best
    return row[-1]


def likeness(read: str, target: str) -> float:
    """1 if `read` contains `target`, otherwise `1 - min(distance, n) / n`, `n` the length of
    `target`, in which there must be something. Source: Flow-GRPO's `ocr.py`.
    """
    read, target = normalised(read), normalised(target)
    if target in read:
        return 1.0
    return 1 - min(distance(read, target), len(target)) / len(target)


class OCR(Reward):
    """`ocr`: how much of the word between the prompt's first two double quotes can be read, in
    [0, 1]. NaN where the engine fails, or the prompt quotes nothing.
    """

    media = "images"
    metadata = ()
    main = "ocr"
    good = 1.0

    def __init__(self, *, engine: Literal["rapidocr", "paddleocr", "easyocr"] = "rapidocr") -> None:
        self.read = reader_of(engine)

    def require(self, prompts: Iterable[Prompt]) -> None:
        """RewardError naming the first prompt that quotes nothing."""
        for prompt in prompts:
            if fault := _fault(prompt.text):
                raise RewardError(f"reward=ocr: {fault}; {_REMEDY}")

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        # engines take what OpenCV gives: rows, columns, blue, green, red
        images = pictures(samples).flip(1).permute(0, 2, 3, 1).contiguous().numpy()
        scores = [self._score(*pair) for pair in zip(images, samples.prompts, strict=True)]
        return {"ocr": torch.tensor(scores, dtype=torch.float32)}

    def _score(self, image: Picture, prompt: str) -> float:
        target = quoted(prompt)
        if fault := _fault(prompt):
            log.error("reward ocr: %s", fault)
            return np.nan
        assert target is not None
        try:
            read = self.read(image)
        except Exception:  # whatever an engine raises; the run goes on without this picture
            log.exception("reward ocr: the engine could not read a picture of %r", prompt)
            return np.nan
        return likeness(read, target)


_REMEDY = (
    "each must hold the word to be drawn in straight double quotes, as in: a sign that says"
    ' "Open" (prompts=file prompts.path=FILE.txt)'
)


def _fault(prompt: str) -> str | None:
    """Why a prompt names no word, if it does not."""
    target = quoted(prompt)
    if target is None:
        return f"the prompt {prompt!r} has no text in double quotes"
    return None if normalised(target) else f"the prompt {prompt!r} quotes nothing"
