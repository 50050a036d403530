from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rlfactory.prompts.ops.scenes import (
    CATEGORIES,
    arrange,
    background,
    caption,
    render,
    sample_scene,
)
from rlfactory.report.image_grid import (
    BAD,
    CORNER,
    GOOD,
    MARK,
    drawable,
    font,
    grid,
    sheet,
    tile,
    wrap,
)


def scenes(count: int) -> tuple[torch.Tensor, list[str]]:
    rng = np.random.default_rng(0)
    images, captions = [], []
    for i in range(count):
        scene = sample_scene(CATEGORIES[i % 6], rng)
        pixels = render(arrange(scene, rng), background(rng))
        images.append(torch.from_numpy(pixels.copy()).permute(2, 0, 1))
        captions.append(caption(scene, rng))
    return torch.stack(images), captions


def load(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


def places(page: np.ndarray, image: torch.Tensor) -> list[tuple[int, int]]:
    """Where on the page the enlarged image stands, as (x, y): exactly, but for its corners."""
    whole = np.asarray(tile(image))
    wanted = whole[CORNER:-CORNER]
    high, wide = wanted.shape[:2]
    corner = (page[: -high + 1, : -wide + 1] == wanted[0, 0]).all(-1)
    found = zip(*np.nonzero(corner), strict=True)
    return [(x, y - CORNER) for y, x in found if (page[y : y + high, x : x + wide] == wanted).all()]


@pytest.mark.parametrize(
    ("side", "shown"), [(8, 160), (64, 192), (100, 200), (160, 160), (512, 512)]
)
def test_small_pictures_grow_by_a_whole_factor(side: int, shown: int) -> None:
    image = torch.randint(0, 256, (3, side, side), dtype=torch.uint8)
    factor = shown // side
    expected = image.repeat_interleave(factor, 1).repeat_interleave(factor, 2)
    assert torch.equal(torch.from_numpy(np.asarray(tile(image)).copy()).permute(2, 0, 1), expected)


def test_huge_and_oblong_pictures_fit() -> None:
    assert tile(torch.zeros(3, 512, 1024, dtype=torch.uint8)).size == (512, 256)
    assert tile(torch.zeros(3, 32, 64, dtype=torch.uint8)).size == (192, 96)


@pytest.mark.parametrize("width", [60, 120, 300])
@pytest.mark.parametrize("lines", [1, 2, 3])
def test_wrapped_text_fits_and_keeps_its_words(width: int, lines: int) -> None:
    face = font(14)
    for text in (
        "",
        "a red circle left of a blue square and " * 3,
        "antidisestablishmentarianism " * 2,
    ):
        rows = wrap(text, face, width, lines)
        assert len(rows) <= lines
        assert all(face.getlength(row) <= width for row in rows)
        if not any(row.endswith("…") for row in rows):
            assert " ".join(rows).split() == text.split()


@pytest.mark.slow
def test_a_grid_shows_every_picture_once_in_reading_order(tmp_path: Path) -> None:
    images, captions = scenes(8)
    grid([*images], captions, tmp_path / "grid.png", title="Title", columns=3)
    page = load(tmp_path / "grid.png")
    found = [places(page, image) for image in images]
    assert all(len(place) == 1 for place in found)
    order = sorted(range(8), key=lambda i: found[i][0][::-1])
    assert order == list(range(8))
    assert [len({p[0][axis] for p in found}) for axis in (0, 1)] == [3, 3]


def test_nothing_touches_the_edge_of_the_page(tmp_path: Path) -> None:
    images, _ = scenes(5)
    long = ["a very long caption that must be cut somewhere " * 5] * 5
    look = {"title": "t" * 500, "good": 0.5}
    grid([*images], long, tmp_path / "g.png", columns=2, scores=[0.5] * 5, **look)
    rows = [list(images[:2])] * 2
    sheet(rows, tmp_path / "s.png", labels=long[:2], heads=["a", "b"], **look)
    for name in ("g.png", "s.png"):
        page = load(tmp_path / name)
        inner = page[12:-12, 12:-12]
        assert (page == 255).sum() - (inner == 255).sum() == page.size - inner.size


def test_frames_tell_good_from_bad_and_from_unscored(tmp_path: Path) -> None:
    images, captions = scenes(3)
    path = tmp_path / "g.png"
    grid([*images], captions, path, scores=[1.0, 0.99, float("nan")], good=1.0)
    page = load(path)
    edges = [
        tuple(map(int, page[y + 50, x - 1])) for ((x, y),) in (places(page, i) for i in images)
    ]
    assert edges[:2] == [GOOD, BAD]
    assert edges[2] not in (GOOD, BAD)
    grid([*images], captions, path, scores=[1.0, 0.99, float("nan")])
    page = load(path)
    assert not (page == GOOD).all(-1).any()


def test_a_caption_and_a_score_are_drawn_below(tmp_path: Path) -> None:
    images, captions = scenes(1)

    def below(captions: list[str], scores: list[float] | None) -> int:
        grid([*images], captions, tmp_path / "g.png", scores=scores)
        page = load(tmp_path / "g.png")
        ((x, y),) = places(page, images[0])
        return int((page[y + 194 :] < 128).all(-1).sum())

    assert below([""], None) == 0
    assert below(captions, None) > 50
    grid([*images], [""], tmp_path / "g.png", scores=[1.0], good=1.0)
    page = load(tmp_path / "g.png")
    ((_, y),) = places(page, images[0])
    assert (page[y + 200 :] == GOOD).all(-1).any()


@pytest.mark.slow
def test_a_strip_is_prompts_by_moments(tmp_path: Path) -> None:
    images, captions = scenes(6)
    rows = [list(images[:3]), list(images[3:])]
    texts = {"labels": captions[:2], "heads": ["0", "30", "60"]}
    sheet(rows, tmp_path / "s.png", **texts, scores=[[0, 1, 1]] * 2, good=1)
    page = load(tmp_path / "s.png")
    at = [[places(page, image)[0] for image in row] for row in rows]
    assert [x for x, _ in at[0]] == [x for x, _ in at[1]]
    assert at[0][0][0] < at[0][1][0] < at[0][2][0]
    assert len({y for _, y in at[0]}) == 1
    assert at[0][0][1] < at[1][0][1]
    x, y = at[1][0]
    assert tuple(map(int, page[y + 50, x - 1])) == BAD
    label = page[y : y + 192, : x - 4]
    assert (label < 128).all(-1).any()


def test_the_corners_of_a_picture_are_round(tmp_path: Path) -> None:
    image = torch.full((3, 64, 64), 100, dtype=torch.uint8)
    image[:, [0, 0, -1, -1], [0, -1, 0, -1]] = 0
    grid([image], [""], tmp_path / "g.png")
    page = load(tmp_path / "g.png")
    assert (page == 100).all(-1).any()
    assert not (page == 0).all(-1).any()


def test_letters_that_the_font_lacks_become_a_mark() -> None:
    assert drawable("a \u7ea2\u8272 cube") == f"a {MARK} cube"
    assert drawable("a\u200d\ufe0fb  \n c") == "ab c"
    assert drawable("\u2192 \u00e9 \u0436") == "\u2192 \u00e9 \u0436"


def test_a_cut_caption_says_where_it_stands_in_full(tmp_path: Path) -> None:
    images, captions = scenes(1)
    heights = []
    for words in (captions, ["a word " * 40]):
        for name in ("", "eval.json"):
            grid([*images], words, tmp_path / "g.png", full_text=name)
            heights.append(load(tmp_path / "g.png").shape[0])
    assert heights[0] == heights[1]
    assert heights[2] < heights[3]


def test_scores_stand_below_the_pictures_of_a_strip(tmp_path: Path) -> None:
    images, _ = scenes(2)

    def dark(scores: list[float | None]) -> int:
        path = tmp_path / "s.png"
        sheet([[*images]], path, labels=[""], heads=["0", "9"], scores=[scores])
        page = load(path)
        ((_, y),) = places(page, images[0])
        return int((page[y + 195 :] < 200).all(-1).sum())

    assert dark([None, None]) == 0
    assert 0 < dark([0.5, None]) < dark([0.5, 0.5])
