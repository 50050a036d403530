"""OCR engines, each as a function from an image to the text in it."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont

from rlfactory.reward.base import RewardError

BGRImage = npt.NDArray[np.uint8]
"""`[H, W, 3]` uint8 in OpenCV's channel order."""
Reader = Callable[[BGRImage], str]


def load_reader(engine: str) -> Reader:
    """Load an engine by name and try it once; RewardError where it is not installed or fails."""
    try:
        reader = _ENGINES[engine]()
        # with text: an engine may load its recognition network only once it has detected some
        reader(draw_word("Open", 128))
    except ImportError as error:
        raise RewardError(
            f"reward.engine={engine} can't be imported ({error}); type {_INSTALL[engine]}"
        ) from error
    except Exception as error:  # weights that can't be downloaded, another version, …
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
    return lambda image: "".join(engine(image).txts or ())


def paddleocr() -> Reader:
    """PaddleOCR for English, version 2 or 3."""
    engine_class = importlib.import_module("paddleocr").PaddleOCR
    if hasattr(engine_class, "predict"):  # version 3
        engine = engine_class(
            lang="en",
            use_doc_orientation_classify=False,
            use_doc_unwarping=False,
            use_textline_orientation=False,
        )
        return lambda image: "".join(
            text for page in engine.predict(image) for text in page["rec_texts"]
        )
    engine = engine_class(lang="en", use_angle_cls=False, show_log=False)
    return lambda image: "".join(
        text for page in engine.ocr(image, cls=False) for _, (text, _) in page or ()
    )


def easyocr() -> Reader:
    """EasyOCR for English, on the GPU of this thread if there is one."""
    module: Any = importlib.import_module("easyocr")
    gpu = f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else False
    engine = module.Reader(["en"], gpu=gpu, verbose=False)
    # EasyOCR wraps its networks to run on all visible GPUs, among them those of other ranks
    for name in ("detector", "recognizer") if gpu else ():
        network = getattr(engine, name)
        setattr(engine, name, getattr(network, "module", network))
    return lambda image: "".join(engine.readtext(image, detail=0))


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


def draw_word(text: str, size: int = 256) -> BGRImage:
    """A square image with a line of text in the middle, black on white, in Pillow's font."""
    image = Image.new("RGB", (size, size), "white")
    font = ImageFont.load_default(size / 8)
    ImageDraw.Draw(image).text((size / 2, size / 2), text, "black", font, anchor="mm")
    return np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
