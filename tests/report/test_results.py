"""What people look at: grids of pictures, tables of texts."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from rlfactory.prompts.ops.pictured import PicturedText, png_of
from rlfactory.report.results import Gallery, beside_sources
from rlfactory.rollout import GeneratedSamples
from rlfactory.run.scores import Scores

PROMPTS = ["a | b", "the\nsecond", "third"]
SCORES = Scores(PROMPTS, {"main": np.array([0.25, np.nan, 1.0])})


def test_texts_become_a_table_that_nothing_breaks(tmp_path: Path) -> None:
    drawn = GeneratedSamples(texts=["goes | on", "two\nlines", "unseen"])
    path = Gallery(tmp_path, "main", None, 2).show("eval", "After all", drawn, SCORES)
    lines = path.read_text().splitlines()
    assert lines[0] == "**After all**"
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert len(rows) == 2
    assert rows[0] == "| a \\| b | goes \\| on | 0.250 |"
    assert "two lines" in rows[1]


def test_a_text_stands_beside_its_divergence_where_that_is_known(tmp_path: Path) -> None:
    drawn = GeneratedSamples(texts=["x", "y", "z"], kl=torch.tensor([1.5, -0.25, 3.0]))
    rows = Gallery(tmp_path, "main", None, 3).show("eval", "", drawn, SCORES).read_text()
    assert "| prompt | response | main | KL |" in rows
    assert "| x | 0.250 | 1.500 |" in rows
    assert "| the second | y | – | -0.250 |" in rows


def test_a_page_shows_the_same_prompts_over_training(tmp_path: Path) -> None:
    shown = Gallery(tmp_path, "main", None, 2)
    shown.record_preview(5, GeneratedSamples(texts=["x5", "y5", "z5"]))
    shown.record_preview(0, GeneratedSamples(texts=["x0", "y0", "z0"]))
    shown.write_strip(PROMPTS)
    page = (tmp_path / "strip.md").read_text()
    assert page.index("| 0 | x0 |") < page.index("| 5 | x5 |") < page.index("| 0 | y0 |")


def test_pictures_become_a_grid_and_a_strip(tmp_path: Path) -> None:
    images = torch.randint(0, 255, (3, 3, 16, 16), dtype=torch.uint8)
    shown = Gallery(tmp_path / "samples", "main", 1.0, 3)
    path = shown.show("eval", "After all", GeneratedSamples(images=images), SCORES)
    assert min(Image.open(path).size) > 100
    shown.record_preview(0, GeneratedSamples(images=images))
    shown.write_strip(PROMPTS)
    assert min(Image.open(tmp_path / "samples" / "strip.png").size) > 100


def test_a_later_attempt_shows_the_same_strip(tmp_path: Path) -> None:
    images = torch.randint(0, 255, (2, 3, 16, 24), dtype=torch.uint8)
    strips = []
    for name, attempts in (("one", 1), ("two", 2)):
        shown = [Gallery(tmp_path / name, "main", 1.0, 3) for _ in range(attempts)]
        shown[0].record_preview(0, GeneratedSamples(images=images))
        shown[-1].record_preview(1000000, GeneratedSamples(images=255 - images))
        shown[-1].write_strip(PROMPTS)
        strips.append(np.array(Image.open(tmp_path / name / "strip.png")))
    assert np.array_equal(*strips)


def test_a_strip_leaves_out_what_is_no_picture_any_more(tmp_path: Path) -> None:
    images = torch.randint(0, 255, (3, 3, 16, 16), dtype=torch.uint8)
    pages = []
    for name, prompts in (("all", [PROMPTS[0], PROMPTS[2]]), ("damaged", PROMPTS)):
        shown = Gallery(tmp_path / name, "main", 1.0, 3)
        kept = images if name == "damaged" else images[[0, 2]]
        for iteration in (0, 5):
            shown.record_preview(iteration, GeneratedSamples(images=kept))
        if name == "damaged":
            file = shown.kept / "000005_1.png"
            file.write_bytes(file.read_bytes()[:60])
            (shown.kept / "x_y.png").write_bytes(b"")
        shown.write_strip(prompts)
        pages.append(np.array(Image.open(tmp_path / name / "strip.png")))
    assert np.array_equal(*pages)


def test_a_page_leaves_out_what_is_no_response_any_more(tmp_path: Path) -> None:
    shown = Gallery(tmp_path, "main", None, 2)
    for iteration in (0, 5, 10):
        shown.record_preview(iteration, GeneratedSamples(texts=[f"x{iteration}", f"y{iteration}"]))
    (shown.kept / "000005.json").write_text("[1")
    (shown.kept / "000010.json").write_text('["x10"]')
    (shown.kept / "eval_000000.json").write_text('["other"]')
    shown.write_strip(PROMPTS[:2])
    rows = [r for r in (tmp_path / "strip.md").read_text().splitlines() if r[:3] != "| i"]
    assert [row for row in rows if row[:3] in ("| 0", "| 1", "| 5")] == [
        *("| 0 | x0 |", "| 10 | x10 |", "| 0 | y0 |")
    ]


def test_nothing_kept_is_no_strip(tmp_path: Path) -> None:
    Gallery(tmp_path, "main", None, 3).write_strip(PROMPTS)
    assert list(tmp_path.iterdir()) == []


def test_first_and_last_pictures_are_kept(tmp_path: Path) -> None:
    images = torch.randint(0, 255, (8, 3, 16, 16), dtype=torch.uint8)
    prompts = [f"p{i}" for i in range(8)]
    shown = Gallery(tmp_path / "samples", "main", 1.0, 8)
    for iteration in (0, 5, 10):
        scores = Scores(prompts, {"main": np.linspace(0, 1, 8) * (iteration + 1)})
        shown.record_evaluation(iteration, GeneratedSamples(images=images))
        name = f"eval_{iteration:06d}"
        shown.show(name, "t", GeneratedSamples(images=images), scores)
    kept = {path.stem for path in (tmp_path / "samples" / "strip").iterdir()}
    assert {f"000000_{i}" for i in range(8)} <= kept
    assert {f"000010_{i}" for i in range(8)} <= kept
    assert {f"000005_{i}" for i in range(8)} & kept == {f"000005_{i}" for i in range(6)}


def test_a_strip_shows_the_scores_of_evaluations(tmp_path: Path) -> None:
    images = torch.randint(0, 255, (3, 3, 16, 16), dtype=torch.uint8)
    heights = []
    for name, is_scored in (("a", False), ("b", True)):
        shown = Gallery(tmp_path / name / "samples", "main", None, 3)
        shown.record_preview(0, GeneratedSamples(images=images))
        if is_scored:
            shown.show("eval_000000", "t", GeneratedSamples(images=images), SCORES)
        shown.write_strip(PROMPTS)
        page = np.asarray(Image.open(tmp_path / name / "samples" / "strip.png"))
        heights.append(int((page < 128).all(-1).sum()))
    assert heights[0] < heights[1]


def test_videos_become_contact_sheets_and_a_gif(tmp_path: Path) -> None:
    videos = torch.randint(0, 255, (3, 5, 3, 16, 24), dtype=torch.uint8)
    shown = Gallery(tmp_path / "samples", "main", 1.0, 3)
    drawn = GeneratedSamples(images=videos, frame_rate=10)
    path = shown.show("eval", "After all", drawn, SCORES)
    assert path.suffix == ".png"
    with Image.open(path.with_suffix(".gif")) as moving:
        assert moving.n_frames == 5
        assert moving.info["duration"] == 100
        assert min(moving.size) > 100
    shown.record_evaluation(0, GeneratedSamples(images=videos))
    with Image.open(tmp_path / "samples" / "strip" / "000000_0.png") as sheet:
        assert sheet.size == (2 * 24, 2 * 16)


def test_the_picture_is_to_the_left_in_the_size_of_the_result() -> None:
    texts = [PicturedText("a", png_of(Image.new("RGB", (9, 9), (50 * i, 0, 0)))) for i in (1, 2)]
    images = torch.full((2, 3, 4, 6), 7, dtype=torch.uint8)
    found = beside_sources(images, texts)
    assert found.shape == (2, 3, 4, 12)
    assert torch.equal(found[..., 6:], images)
    assert found[:, 0, :, :6].unique().tolist() == [50, 100]


def test_without_pictures_nothing_changes() -> None:
    images = torch.zeros(2, 3, 4, 6, dtype=torch.uint8)
    assert beside_sources(images, ["a", "b"]) is images
