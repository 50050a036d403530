import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from rlfactory.reward.base import RewardError
from rlfactory.reward.ops.ocr_engines import draw_word, load_reader

BLANK = np.zeros((8, 8, 3), np.uint8)


@pytest.fixture
def stand_in(monkeypatch):
    """Puts a module of some name in the place of an engine that is not installed."""

    def put(name, **contents):
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)

    return put


def engine(**methods):
    """A class that takes anything, with these methods."""
    methods = {name: staticmethod(method) for name, method in methods.items()}
    return type("Engine", (), {"__init__": lambda self, *_, **options: None, **methods})


def test_paddleocr_3(stand_in):
    pages = [{"rec_texts": ["New ", "York"]}]
    stand_in("paddleocr", PaddleOCR=engine(predict=lambda picture: pages))
    assert load_reader("paddleocr")(BLANK) == "New York"


def test_paddleocr_2(stand_in):
    box = [[0, 0]] * 4
    lines = [[(box, ("New ", 0.9)), (box, ("York", 0.8))]]
    stand_in("paddleocr", PaddleOCR=engine(ocr=lambda picture, cls: lines))
    assert load_reader("paddleocr")(BLANK) == "New York"
    stand_in("paddleocr", PaddleOCR=engine(ocr=lambda picture, cls: [None]))
    assert load_reader("paddleocr")(BLANK) == ""


def test_easyocr(stand_in):
    stand_in("easyocr", Reader=engine(readtext=lambda picture, detail: ["New ", "York"]))
    assert load_reader("easyocr")(BLANK) == "New York"


def test_easyocr_stays_on_the_gpu_of_its_rank(stand_in, monkeypatch):
    made = []

    class Reader:
        def __init__(self, languages, gpu, verbose):
            self.detector = SimpleNamespace(module="detector")
            self.recognizer = SimpleNamespace(module="recognizer")
            made.append((self, gpu))

        def readtext(self, picture, detail):
            return []

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 2)
    stand_in("easyocr", Reader=Reader)
    load_reader("easyocr")
    ((reader, gpu),) = made
    assert (gpu, reader.detector, reader.recognizer) == ("cuda:2", "detector", "recognizer")


def test_rapidocr(stand_in):
    stand_in("onnxruntime")
    replies = iter([("Open",), ("New ", "York"), None])
    call = {"__call__": lambda self, picture: SimpleNamespace(txts=next(replies))}
    stand_in("rapidocr", RapidOCR=type("Engine", (engine(),), call))
    reader = load_reader("rapidocr")
    assert [reader(BLANK), reader(BLANK)] == ["New York", ""]


@pytest.mark.parametrize("name", ["rapidocr", "paddleocr", "easyocr"])
def test_one_that_is_not_installed(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RewardError, match=rf"^reward\.engine={name} .*pip install .*ocr"):
        load_reader(name)


def test_rapidocr_without_onnxruntime(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(RewardError, match=r"pip install 'rlfactory\[ocr\]'"):
        load_reader("rapidocr")


def test_one_that_can_not_read(stand_in):
    def fail(picture, detail):
        raise RuntimeError("no weights")

    stand_in("easyocr", Reader=engine(readtext=fail))
    with pytest.raises(RewardError, match=r"reward\.engine=easyocr could not .*no weights"):
        load_reader("easyocr")


def test_a_drawn_word_is_in_the_middle_of_a_white_square():
    picture = draw_word("Open", 64)
    assert picture.shape == (64, 64, 3)
    assert picture[0].min() == picture[:, 0].min() == 255
    assert picture[24:40].min() < 64
