"""Prompts with pictures: identity, sources, and what is wrong with files."""

import json
import pickle
from io import BytesIO
from pathlib import Path

import pytest
from datasets import Dataset, Features, Value
from datasets import Image as ImageColumn
from PIL import Image
from PIL.ExifTags import Base

from rlfactory.prompts.base import PromptError
from rlfactory.prompts.file import FilePrompts, read_prompts
from rlfactory.prompts.hub import HubPrompts
from rlfactory.prompts.ops.in_memory import InMemoryPrompts
from rlfactory.prompts.ops.pictured import (
    PicturedText,
    PictureError,
    identity,
    mismatch,
    picture_size,
    pictured,
    png_of,
    size_problem,
)


def picture(color: str = "red", size: tuple[int, int] = (8, 8)) -> Image.Image:
    return Image.new("RGB", size, color)


RED, BLUE = png_of(picture()), png_of(picture("blue"))


def test_a_text_is_told_apart_by_its_picture() -> None:
    one, same, other = PicturedText("a", RED), PicturedText("a", RED), PicturedText("a", BLUE)
    assert one == same
    assert one != other
    assert one != "a"
    assert one != "a"
    assert len({one, same, other, "a", PicturedText("b", RED)}) == 4
    assert len({identity(text) for text in (one, same, other, "a")}) == 3
    assert identity("a") == "a"


def test_it_is_its_text_wherever_it_is_written() -> None:
    one = PicturedText("make it red", RED)
    assert f"{one}" == "make it red"
    assert json.dumps([one]) == '["make it red"]'
    assert one.encode() == b"make it red"
    assert type(str(one)) is str
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert again.source == RED


def test_sources(tmp_path: Path) -> None:
    picture("blue").save(tmp_path / "blue.png")
    from_path = pictured("a", "blue.png", tmp_path)
    assert from_path.open().getpixel((0, 0)) == (0, 0, 255)
    for given in (RED, picture(), {"bytes": RED, "path": None}, {"bytes": RED}):
        assert pictured("a", given).open().getpixel((0, 0)) == (255, 0, 0)
    assert pictured("a", {"bytes": None, "path": str(tmp_path / "blue.png")}).content
    assert identity(from_path) == identity(PicturedText("a", (tmp_path / "blue.png").read_bytes()))


def test_transparent_pictures_are_read_as_rgb() -> None:
    assert pictured("a", Image.new("RGBA", (8, 8))).open().mode == "RGB"


def test_a_picture_of_16_bits_is_not_white(tmp_path: Path) -> None:
    Image.new("I;16", (8, 8), 257 * 100).save(tmp_path / "a.png")
    assert pictured("a", "a.png", tmp_path).open().getpixel((0, 0)) == (100, 100, 100)


def test_a_photo_stands_upright(tmp_path: Path) -> None:
    lying = Image.new("L", (30, 20))
    lying.putpixel((0, 0), 255)
    (exif := Image.Exif())[Base.Orientation] = 6  # turned by a quarter
    lying.save(tmp_path / "a.png", exif=exif)
    found = pictured("x", tmp_path / "a.png")
    assert picture_size(found.source) == (30, 20)
    for picture in (found.open(), pictured("x", Image.open(tmp_path / "a.png")).open()):
        assert picture.size == (20, 30)
        assert picture.getpixel((19, 0)) == (255, 255, 255)


def test_a_damaged_turn_is_none() -> None:
    """Of a JPEG whose orientation is a text."""
    entry = b"\x01\x12\x00\x02\x00\x00\x00\x04abc\x00"
    exif = b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01" + entry + bytes(4)
    picture(size=(8, 6)).save(file := BytesIO(), "JPEG", exif=exif)
    found = pictured("x", file.getvalue())
    assert picture_size(found.source) == (6, 8)
    assert found.open().size == (8, 6)


def test_a_picture_of_too_many_pixels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow's limit is twice this number; what it raises there is no ValueError."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(ValueError, match=r"can't be read as a picture \(too many pixels\)"):
        pictured("a", RED)
    with pytest.raises(PictureError, match="no picture that can be read"):
        PicturedText("a", RED).open()


def test_what_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    for given, said in [
        ("none.png", "there is no picture .*none.png"),
        ("text.png", "text.png can't be read as a picture"),
        (3, "path of a file, not 3"),
    ]:
        with pytest.raises(ValueError, match=said):
            pictured("a", given, tmp_path)
    gone = PicturedText("a", str(tmp_path / "gone.png"))
    with pytest.raises(PictureError, match=r"gone\.png: cannot read the picture"):
        gone.open()
    with pytest.raises(PictureError, match="no picture that can be read"):
        PicturedText("a", RED[:40]).open()


@pytest.mark.parametrize(
    ("size", "fits"), [((8, 8), True), ((100, 104), True), ((100, 107), False), ((8, 16), False)]
)
def test_the_aspect_ratio_may_differ_by_a_twentieth(size: tuple[int, int], fits: bool) -> None:
    problem = size_problem(png_of(picture(size=size)), (512, 512))
    assert (problem is None) == fits
    assert fits or f"has {size[1]} x {size[0]} pixels" in str(problem)


def test_pictures_and_models_that_do_not_match() -> None:
    one = PicturedText("a", RED)
    assert mismatch([one], True) is mismatch(["a"], False) is None
    assert "'a' has no picture" in str(mismatch([one, "a"], True))
    assert "'a' has a picture" in str(mismatch(["b", one], False))


def lines(folder: Path, *rows: object) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_a_file_of_prompts_with_pictures(tmp_path: Path) -> None:
    picture().save(tmp_path / "red.png")
    path = lines(tmp_path, {"prompt": "a", "image": "red.png", "tag": "x"}, {"prompt": "b"})
    first, second = FilePrompts(path=str(path)).prompts
    assert first.text == PicturedText("a", str(tmp_path / "red.png"))
    assert first.metadata == {"image": str(tmp_path / "red.png"), "tag": "x"}
    assert (second.text, second.metadata) == ("b", {})
    plain = FilePrompts(path=str(path), image_column=None).prompts[0]
    assert (plain.text, plain.metadata["image"]) == ("a", "red.png")


def test_a_line_whose_picture_can_not_be_read_is_named(tmp_path: Path) -> None:
    path = lines(tmp_path, {"prompt": "a"}, {"prompt": "b", "image": "none.png"})
    with pytest.raises(PromptError, match=r"mine\.jsonl:2: `image`: there is no picture .*none"):
        read_prompts(path)


def test_rows_in_memory() -> None:
    rows = [{"prompt": "a", "image": picture("blue"), "tag": 1}, {"prompt": "a", "image": RED}]
    first, second = InMemoryPrompts(rows).prompts
    assert first.text != second.text
    assert (first.metadata, second.metadata) == ({"tag": 1}, {})
    with pytest.raises(PromptError, match="row 0: `image`: there is no picture"):
        InMemoryPrompts([{"prompt": "a", "image": "no.png"}])


def test_a_column_of_images(tmp_path: Path) -> None:
    features = Features({"prompt": Value("string"), "image": ImageColumn()})
    rows = {"prompt": ["a", "a"], "image": [picture(), picture("blue")]}
    Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "data")
    source = HubPrompts(path=str(tmp_path / "data"), image_column="image")
    red, blue = source.texts()
    assert red != blue
    assert blue.open().getpixel((0, 0)) == (0, 0, 255)
    assert [*source.known()][0].metadata == {}
