import logging
import random
import shutil
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.ocr import (
    OCR,
    draw_word,
    levenshtein,
    load_reader,
    normalise_text,
    quoted_word,
    similarity,
)

WORDS = ["New York", "Open", "Bakery", "Quartz", "Hot Soup", "Piano"]


@pytest.fixture(scope="module")
def real():
    pytest.importorskip("rapidocr")
    return OCR()


@pytest.fixture
def said(monkeypatch):
    """The reward, with an engine that reads what it is told to."""

    def make(*replies):
        def read(pictures):
            found = [replies[picture[0, 0, 0]] for picture in pictures]
            for reply in found:
                if isinstance(reply, Exception):
                    raise reply
            return found

        monkeypatch.setattr("rlfactory.reward.ocr.load_reader", lambda engine: read)
        return OCR()

    return make


def samples(prompts, images=None):
    if images is None:
        images = torch.arange(len(prompts), dtype=torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, 8, 8)
    return Samples(prompts, [{}] * len(prompts), torch.arange(len(prompts)), images)


def picture_of(words):
    rows = [torch.from_numpy(draw_word(word, 192)).flip(-1).permute(2, 0, 1) for word in words]
    return torch.stack(rows)


def sign(word):
    return f'a sign that says "{word}"'


def test_golden(said):
    """Reference numbers of flow_grpo's `ocr.py` on these readings."""
    reward = said("NewYork City", "Nwe York", "", "x" * 15)
    found = reward.score(samples([sign("New York")] * 4))
    check_scores(reward, found, 4)
    assert found["ocr"].tolist() == pytest.approx([1.0, 0.714286, 0.0, 0.0], abs=1e-6)


def test_what_a_prompt_quotes():
    assert quoted_word(sign("New York")) == "New York"
    assert quoted_word('"a" and "b"') == "a"
    assert quoted_word('says ""') == ""
    assert quoted_word("says “Open”") is None
    assert quoted_word('5" wide') is None
    assert normalise_text(" New\n York\t") == "newyork"


def edits(word, rng):
    """A random insertion, deletion or change."""
    place = rng.randrange(len(word) + 1)
    letter = rng.choice("abc")
    return rng.choice(
        [
            word[:place] + letter + word[place:],
            word[:place] + word[place + 1 :],
            word[:place] + letter + word[place + 1 :],
        ]
    )


def test_distance_is_a_metric_that_single_edits_bound():
    rng = random.Random(0)
    for _ in range(200):
        a = "".join(rng.choices("abc", k=rng.randrange(9)))
        b, c = edits(a, rng), "".join(rng.choices("abc", k=rng.randrange(9)))
        assert levenshtein(a, a) == 0
        assert levenshtein(a, b) == (a != b)
        assert levenshtein(a, c) == levenshtein(c, a) <= levenshtein(a, b) + levenshtein(b, c)
        assert abs(len(a) - len(c)) <= levenshtein(a, c) <= max(len(a), len(c))
    assert levenshtein("kitten", "sitting") == 3


def test_likeness_is_in_range_and_one_only_if_the_word_is_there():
    rng = random.Random(1)
    for _ in range(200):
        target = "".join(rng.choices("abc", k=rng.randrange(1, 7)))
        read = "".join(rng.choices("abc ", k=rng.randrange(12)))
        score = similarity(read, target)
        assert 0 <= score <= 1
        assert (score == 1) == (target in read.replace(" ", ""))


def test_a_picture_that_can_not_be_read_is_no_score(said, caplog):
    prompts = [sign("Open")] * 3
    found = said("Open", RuntimeError("out of memory"), "Open").score(samples(prompts))["ocr"]
    assert found[[0, 2]].tolist() == [1, 1]
    assert found[1].isnan()
    assert "out of memory" in caplog.text


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("a red fox", "'a red fox' has no text in double quotes"),
        ('a sign that says " "', "quotes nothing"),
        ('a 5" nail', "has no text in double quotes"),
    ],
)
def test_a_prompt_without_a_word(said, prompt, message, caplog):
    reward = said("x", "x")
    with pytest.raises(RewardError, match=message):
        reward.check_prompts([Prompt(sign("Open"), {}), Prompt(prompt, {})])
    reward.check_prompts([Prompt(sign("Open"), {})])
    with caplog.at_level(logging.ERROR):
        assert reward.score(samples([prompt]))["ocr"].isnan().all()
    assert message in caplog.text


def test_rendered_words(real):
    """Six of the 200 that scripts/bench/ocr.py draws."""
    images = picture_of(WORDS)
    right = real.score(samples([sign(word) for word in WORDS], images))["ocr"]
    assert right.mean() >= 0.98
    wrong = real.score(samples([sign(word) for word in WORDS[1:] + WORDS[:1]], images))["ocr"]
    assert wrong.mean() <= 0.4


def test_an_empty_picture_has_no_word(real):
    assert real.score(samples([sign("Open")]))["ocr"].tolist() == [0]


BLANK = np.zeros((8, 8, 3), np.uint8)


@pytest.fixture
def stand_in(monkeypatch):
    """Puts a module of some name in the place of an engine that is not installed."""

    def put(name, **contents):
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)

    return put


def engine(read):
    """A class that takes any options and reads a picture."""
    return type("Engine", (), {"__init__": lambda self, **options: None, "__call__": read})


def test_rapidocr(stand_in):
    stand_in("onnxruntime")
    replies = iter([("Open",), ("New ", "York"), None])
    stand_in("rapidocr", RapidOCR=engine(lambda _, image: SimpleNamespace(txts=next(replies))))
    reader = load_reader("rapidocr")
    assert reader([BLANK, BLANK]) == ["New York", ""]


def test_one_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(RewardError, match=r"^reward\.engine=rapidocr .*pip install .*ocr"):
        load_reader("rapidocr")


def test_rapidocr_without_onnxruntime(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(RewardError, match=r"pip install 'rlfactory\[ocr\]'"):
        load_reader("rapidocr")


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
def test_tesseract():
    reward = OCR(engine="tesseract", name="gold")
    assert reward.main == "gold"
    right = [sign(word) for word in WORDS]
    images = torch.cat([picture_of(WORDS), torch.full((1, 3, 192, 192), 255, dtype=torch.uint8)])
    found = reward.score(samples([*right, sign("Open")], images))["gold"]
    assert found[:-1].mean() >= 0.98
    assert found[-1] == 0, "nothing is read in an empty picture, and no page is lost"
    swapped = reward.score(samples(right[1:] + right[:1], images[:-1]))["gold"]
    assert swapped.mean() <= 0.4


def test_tesseract_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda command: None)
    with pytest.raises(RewardError, match=r"^reward\.engine=tesseract needs .*apt-get install"):
        load_reader("tesseract")


def test_one_that_can_not_read(stand_in):
    def fail(self, picture):
        raise RuntimeError("no weights")

    stand_in("onnxruntime")
    stand_in("rapidocr", RapidOCR=engine(fail))
    with pytest.raises(RewardError, match=r"reward\.engine=rapidocr could not .*no weights"):
        load_reader("rapidocr")


def test_a_drawn_word_is_in_the_middle_of_a_white_square():
    picture = draw_word("Open", 64)
    assert picture.shape == (64, 64, 3)
    assert picture[0].min() == picture[:, 0].min() == 255
    assert picture[24:40].min() < 64
