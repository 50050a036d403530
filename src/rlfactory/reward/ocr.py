"""OCR reward: whether the word that the prompt quotes can be read in the image (Flow-GRPO)."""

import importlib
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.prompt_features import quotation_problem, quoted_word
from rlfactory.reward.base import Reward, RewardError, Samples, require_images

log = logging.getLogger(__name__)
_REMEDY = (
    "each must hold the word to be drawn in straight double quotes, as in: a sign that says"
    ' "Open"; prompts=signs has such prompts'
)
BGRImage = npt.NDArray[np.uint8]
"""`[H, W, 3]` uint8 in OpenCV's channel order."""
Reader = Callable[[Sequence[BGRImage]], list[str]]
"""The text in each image."""


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
    """How much of the word between the prompt's first two double quotes can be read, in [0, 1],
    reported under `name`.

    NaN where the engine fails, or the prompt quotes nothing.
    """

    media = "images"
    prompt_feature = "quoted_word"
    best_score = 1.0

    def __init__(
        self,
        *,
        engine: Literal["rapidocr", "tesseract"] = "rapidocr",
        name: str = "ocr",
    ) -> None:
        """
        Args:
            engine: rapidocr | tesseract: the OCR engine.
            name: The score's name in metrics, tables and figures.
        """
        self.main = name
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
        words = [self._word(prompt) for prompt in samples.prompts]
        pairs = zip(self._texts([*images]), words, strict=True)
        scores = [np.nan if None in pair else similarity(*pair) for pair in pairs]  # type: ignore[arg-type]
        return {self.main: torch.tensor(scores, dtype=torch.float32)}

    def _word(self, prompt: str) -> str | None:
        if problem := quotation_problem(prompt):
            log.error("reward %s: %s", self.main, problem)
            return None
        return quoted_word(prompt)

    def _texts(self, images: Sequence[BGRImage]) -> list[str | None]:
        """The text in each image, None where the engine fails; others are read on their own."""
        try:
            return [*self.read(images)]
        except Exception:  # engines raise anything; the run continues without this image
            if len(images) > 1:
                return [text for image in images for text in self._texts([image])]
            log.exception("reward %s: the engine could not read an image", self.main)
            return [None]


def load_reader(engine: str) -> Reader:
    """Load an engine by name and try it once; RewardError where it is not installed or fails."""
    load, install = _ENGINES[engine]
    try:
        reader = load()
        # with text: an engine may load its recognition network only once it has detected some
        reader([draw_word("Open", 128)])
    except RewardError:
        raise
    except ImportError as error:
        raise RewardError(
            f"reward.engine={engine} can't be imported ({error}); type {install}"
        ) from error
    except Exception as error:  # of another version, …
        raise RewardError(
            f"reward.engine={engine} could not be set up: {type(error).__name__}: {error}"
        ) from error
    return reader


def rapidocr() -> Reader:
    """RapidOCR: PaddleOCR's networks in onnxruntime, with the weights in the package.

    As in Flow-GRPO, text is not rotated, and only images larger than 960 pixels are resized.
    """
    importlib.import_module("onnxruntime")  # rapidocr itself imports it only on the first image
    engine = importlib.import_module("rapidocr").RapidOCR(
        params={
            "Global.use_cls": False,
            "Global.log_level": "error",
            "Det.limit_type": "max",
            "Det.limit_side_len": 960,
            "EngineConfig.onnxruntime.intra_op_num_threads": torch.get_num_threads(),
        }
    )
    return lambda images: ["".join(engine(image).txts or ()) for image in images]


def tesseract() -> Reader:
    """Tesseract's command for English; one process reads all images of a call."""
    command = shutil.which("tesseract")
    if command is None:
        raise RewardError("reward.engine=tesseract needs the command tesseract; " + _DEBIAN)
    environment = os.environ | {"OMP_THREAD_LIMIT": str(torch.get_num_threads())}

    def read(images: Sequence[BGRImage]) -> list[str]:
        with TemporaryDirectory() as folder:
            paths = [Path(folder, f"{i}.png") for i in range(len(images))]
            for path, image in zip(paths, images, strict=True):
                Image.fromarray(np.ascontiguousarray(image[:, :, ::-1])).save(path)
            listed = Path(folder, "images.txt")
            listed.write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
            # 11: text anywhere, a line or a letter alone
            told = [command, str(listed), "stdout", "--psm", "11"]
            done = subprocess.run(told, capture_output=True, check=True, env=environment)
        # form feeds stand between pages, and after the last in some versions
        pages = done.stdout.decode().split("\f")
        if len(pages) < len(images):
            raise RuntimeError(f"tesseract read {len(pages)} of {len(images)} images")
        return pages[: len(images)]

    return read


_DEBIAN = "type apt-get install tesseract-ocr"
_ENGINES: dict[str, tuple[Callable[[], Reader], str]] = {
    "rapidocr": (rapidocr, "pip install 'rlfactory[ocr]'"),
    "tesseract": (tesseract, _DEBIAN),
}
"""What loads an engine, and what installs it."""


def draw_word(text: str, size: int = 256) -> BGRImage:
    """A square image with a line of text in the middle, black on white, in Pillow's font."""
    image = Image.new("RGB", (size, size), "white")
    font = ImageFont.load_default(size / 8)
    ImageDraw.Draw(image).text((size / 2, size / 2), text, "black", font, anchor="mm")
    return np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
