import base64
import io

import pytest
from PIL import Image

from rlfactory.run.page.images import LARGEST, embed


def decoded(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


def test_a_large_image_is_made_moderate(tmp_path):
    Image.new("RGB", (3200, 800), "red").save(tmp_path / "a.png")
    embedded = embed(tmp_path / "a.png")
    assert (embedded.width, embedded.height) == (LARGEST, 400) == decoded(embedded.address).size
    assert not embedded.is_tiny


def test_noise_is_webp_and_flat_colour_what_is_smaller(tmp_path):
    Image.effect_noise((200, 200), 90).save(tmp_path / "a.png")
    embedded = embed(tmp_path / "a.png")
    assert embedded.address.startswith("data:image/webp;base64,")
    assert len(embedded.address) < (tmp_path / "a.png").stat().st_size


@pytest.mark.parametrize("content", [b"", b"not an image", None])
def test_what_is_no_image_is_an_oserror(tmp_path, content):
    if content is not None:
        (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(OSError, match=r"a\.png"):
        embed(tmp_path / "a.png")


def test_half_an_image_is_an_oserror(tmp_path):
    Image.effect_noise((99, 99), 90).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(OSError, match="truncated"):
        embed(tmp_path / "a.png")


def test_an_image_can_be_made_smaller(tmp_path):
    Image.new("RGB", (400, 100), "red").save(tmp_path / "a.png")
    embedded = embed(tmp_path / "a.png", 100)
    assert (embedded.width, embedded.height) == (100, 25)
