"""Engines that read the text in a picture, each as one function of a picture."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont

from rlfactory.reward.base import RewardError

Picture = npt.NDArray[np.uint8]
"""`[H, W, 3]`, blue first, as OpenCV has it."""
Reader = Callable[[Picture], str]


def reader_of(engine: str) -> Reader:
    """The engine of a name, tried once; RewardError where it is not installed or can't read."""
    try:
        reader = _ENGINES[engine]()
        reader(_trial())
    except ImportError as error:
        raise RewardError(
            f"reward.engine={engine} can't be imported ({error}); type {_INSTALL[engine]}"
        ) from error
    except Exception as error:  # weights that can't be fetched, a library of another version, …
        raise RewardError(
            f"reward.engine={engine} could not be set up: {type(error).__name__}: {error}"
        ) from error
    return reader


def rapidocr() -> Reader:
    """RapidOCR: PaddleOCR's networks in onnxruntime, with weights inside the package.

    As in Flow-GRPO, no text is turned round, and only pictures above 960 pixels are resized.
    """
    importlib.import_module("onnxruntime")  # which rapidocr asks for when it first reads
    engine = importlib.import_module("rapidocr").RapidOCR(
        params={
            "Global.use_cls": False,
            "Global.log_level": "error",
            "Det.limit_type": "max",
            "Det.limit_side_len": 960,
            "EngineConfig.onnxruntime.intra_op_num_threads": torch.get_num_threads(),
        }
    )
    return lambda picture: "".join(engine(picture).txts or ())


def paddleocr() -> Reader:
    """PaddleOCR for English, of version 2 or 3."""
    kind = importlib.import_module("paddleocr").PaddleOCR
    if hasattr(kind, "predict"):
        engine = kind(
            lang="en",
            use_doc_orientation_classify=False,
            use_doc_unwarping=False,
            use_textline_orientation=False,
        )
        return lambda picture: "".join(
            text for page in engine.predict(picture) for text in page["rec_texts"]
        )
    engine = kind(lang="en", use_angle_cls=False, show_log=False)
    return lambda picture: "".join(
        text for page in engine.ocr(picture, cls=False) for _, (text, _) in page or ()
    )


def easyocr() -> Reader:
    """EasyOCR for English."""
    module: Any = importlib.import_module("easyocr")
    engine = module.Reader(["en"], gpu=torch.cuda.is_available(), verbose=False)
    return lambda picture: "".join(engine.readtext(picture, detail=0))


_ENGINES: dict[str, Callable[[], Reader]] = {
    "rapidocr": rapidocr,
    "paddleocr": paddleocr,
    "easyocr": easyocr,
}
_INSTALL = {
    "rapidocr": "pip install 'rlfactory[ocr]'",
    "paddleocr": "pip install paddleocr paddlepaddle",
    "easyocr": "pip install easyocr",
}


def drawn(text: str, size: int = 256) -> Picture:
    """A square picture with a line of text in the middle, black on white, in Pillow's font."""
    image = Image.new("RGB", (size, size), "white")
    font = ImageFont.load_default(size / 8)
    ImageDraw.Draw(image).text((size / 2, size / 2), text, "black", font, anchor="mm")
    return np.ascontiguousarray(np.asarray(image)[:, :, ::-1])


def _trial() -> Picture:
    # with text in it: an engine may load what recognises letters only when it has found some
    return drawn("Open", 128)
