"""Pictures travel within the page."""

import base64
import io

import pytest
from PIL import Image

from rlfactory.report.page.images import LARGEST, embed, pictures
from rlfactory.report.report import Picture


def decoded(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


def test_a_large_picture_is_made_moderate(tmp_path):
    Image.new("RGB", (3200, 800), "red").save(tmp_path / "a.png")
    made = embed(tmp_path / "a.png")
    assert (made.width, made.height) == (LARGEST, 400) == decoded(made.address).size


def test_noise_is_webp_and_flat_colour_what_is_smaller(tmp_path):
    Image.effect_noise((200, 200), 90).save(tmp_path / "a.png")
    made = embed(tmp_path / "a.png")
    assert made.address.startswith("data:image/webp;base64,")
    assert len(made.address) < (tmp_path / "a.png").stat().st_size


@pytest.mark.parametrize("content", [b"", b"not a picture", None])
def test_what_is_no_picture_is_an_oserror(tmp_path, content):
    if content is not None:
        (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(OSError, match=r"a\.png"):
        embed(tmp_path / "a.png")


def test_half_a_picture_is_an_oserror(tmp_path):
    Image.effect_noise((99, 99), 90).save(tmp_path / "a.png")
    whole = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(OSError, match="truncated"):
        embed(tmp_path / "a.png")


def test_figures_stand_under_their_rows(report):
    made = embed(report.pictures[0].path)
    shown = [(Picture(row, "c", report.pictures[0].path), made) for row in ("b", "a", "b")]
    html = pictures(shown)
    assert html.index("<h3>b</h3>") < html.index("<h3>a</h3>")
    assert html.count("<h3>") == 2
    assert html.count('alt="b: c"') == 2
