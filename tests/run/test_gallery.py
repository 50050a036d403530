"""What people look at: grids of pictures, tables of texts."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from rlfactory.run.gallery import Pictures, Texts, gallery
from rlfactory.run.scores import Scores
from rlfactory.sampler.base import Drawn

PROMPTS = ["a | b", "the\nsecond", "third"]
SCORES = Scores(PROMPTS, {"main": np.array([0.25, np.nan, 1.0])})


def test_each_medium_has_its_kind(tmp_path: Path) -> None:
    assert isinstance(gallery("images", tmp_path, "main", None, 2), Pictures)
    assert isinstance(gallery("texts", tmp_path, "main", None, 2), Texts)


def test_texts_become_a_table_that_nothing_breaks(tmp_path: Path) -> None:
    drawn = Drawn(texts=["goes | on", "two\nlines", "unseen"])
    path = Texts(tmp_path, "main", None, 2).show("eval", "After all", drawn, SCORES)
    lines = path.read_text().splitlines()
    assert lines[0] == "# After all"
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert len(rows) == 2
    assert rows[0] == "| 0.250 | a \\| b | goes \\| on |"
    assert "two lines" in rows[1]


def test_a_text_stands_beside_its_divergence_where_that_is_known(tmp_path: Path) -> None:
    drawn = Drawn(texts=["x", "y", "z"], kl=torch.tensor([1.5, -0.25, 3.0]))
    rows = Texts(tmp_path, "main", None, 3).show("eval", "", drawn, SCORES).read_text()
    assert "| main | KL | prompt | response |" in rows
    assert "| 0.250 | 1.500 | a" in rows
    assert "| -0.250 | the second | y |" in rows


def test_a_page_shows_the_same_prompts_over_training(tmp_path: Path) -> None:
    shown = Texts(tmp_path, "main", None, 2)
    shown.keep(5, Drawn(texts=["x5", "y5", "z5"]))
    shown.keep(0, Drawn(texts=["x0", "y0", "z0"]))
    shown.conclude(PROMPTS)
    page = (tmp_path / "strip.md").read_text()
    assert page.index("| 0 | x0 |") < page.index("| 5 | x5 |") < page.index("| 0 | y0 |")


def test_pictures_become_a_grid_and_a_strip(tmp_path: Path) -> None:
    images = torch.randint(0, 255, (3, 3, 16, 16), dtype=torch.uint8)
    shown = Pictures(tmp_path / "samples", "main", 1.0, 3)
    path = shown.show("eval", "After all", Drawn(images=images), SCORES)
    assert min(Image.open(path).size) > 100
    shown.keep(0, Drawn(images=images))
    shown.conclude(PROMPTS)
    assert min(Image.open(tmp_path / "samples" / "strip.png").size) > 100


def test_a_later_sitting_shows_the_same_strip(tmp_path: Path) -> None:
    images = torch.randint(0, 255, (2, 3, 16, 24), dtype=torch.uint8)
    strips = []
    for name, sittings in (("one", 1), ("two", 2)):
        shown = [Pictures(tmp_path / name, "main", 1.0, 3) for _ in range(sittings)]
        shown[0].keep(0, Drawn(images=images))
        shown[-1].keep(1000000, Drawn(images=255 - images))
        shown[-1].conclude(PROMPTS)
        strips.append(np.array(Image.open(tmp_path / name / "strip.png")))
    assert np.array_equal(*strips)


def test_nothing_kept_is_no_strip(tmp_path: Path) -> None:
    Pictures(tmp_path, "main", None, 3).conclude(PROMPTS)
    assert list(tmp_path.iterdir()) == []
