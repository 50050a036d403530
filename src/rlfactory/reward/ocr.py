"""OCR reward: whether the word that the prompt quotes can be read in the image (Flow-GRPO)."""

import logging
from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.quoted_words import quotation_problem, quoted_word
from rlfactory.reward.base import Reward, RewardError, Samples, require_images
from rlfactory.reward.ops.ocr_engines import BGRImage, load_reader

log = logging.getLogger(__name__)


def normalise_text(text: str) -> str:
    """The text in lower case, without white space."""
    return "".join(text.split()).lower()


def levenshtein(a: str, b: str) -> int:
    """The Levenshtein distance: how many characters to insert, delete or replace."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, start=1):
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
            diagonal, row[j] = row[j], best
    return row[-1]


def similarity(read: str, target: str) -> float:
    """1 if `read` contains `target`, else `1 - min(distance, n) / n` (Flow-GRPO's `ocr.py`).

    `n` is the length of `target` without white space, at least 1, and the distance Levenshtein's.
    """
    read, target = normalise_text(read), normalise_text(target)
    if target in read:
        return 1.0
    return 1 - min(levenshtein(read, target), len(target)) / len(target)


class OCR(Reward):
    """`ocr`: how much of the word between the prompt's first two double quotes can be read, in
    [0, 1].

    NaN where the engine fails, or the prompt quotes nothing. RewardError where the engine is not
    installed.
    """

    media = "images"
    metadata = ()
    prompt_feature = "quoted_word"
    main = "ocr"
    best_score = 1.0

    def __init__(self, *, engine: Literal["rapidocr", "paddleocr", "easyocr"] = "rapidocr") -> None:
        self.read = load_reader(engine)

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """RewardError that names the first prompt which quotes nothing."""
        for prompt in prompts:
            if problem := quotation_problem(prompt.text):
                raise RewardError(f"reward=ocr: {problem}; {_REMEDY}")

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        # engines take OpenCV's layout: rows, columns, blue first
        images = require_images(samples).flip(1).permute(0, 2, 3, 1).contiguous().numpy()
        scores = [self._score(*pair) for pair in zip(images, samples.prompts, strict=True)]
        return {"ocr": torch.tensor(scores, dtype=torch.float32)}

    def _score(self, image: BGRImage, prompt: str) -> float:
        target = quoted_word(prompt)
        if problem := quotation_problem(prompt):
            log.error("reward ocr: %s", problem)
            return np.nan
        assert target is not None
        try:
            read = self.read(image)
        except Exception:  # engines raise anything; the run continues without this image
            log.exception("reward ocr: the engine could not read an image of %r", prompt)
            return np.nan
        return similarity(read, target)


_REMEDY = (
    "each must hold the word to be drawn in straight double quotes, as in: a sign that says"
    ' "Open"; prompts=signs has such prompts'
)
