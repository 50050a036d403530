from collections.abc import Callable, Iterator

import pytest
from PIL import Image, ImageDraw

from rlfactory.report import fonts
from rlfactory.report.fonts import MARK, Face, dejavu, fallback, has_missing_letters

CHINESE = "红"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[str]], None]]:
    """Pretends that these are the fonts of the system."""

    def install(paths: list[str]) -> None:
        monkeypatch.setattr(fonts, "system_fonts", lambda: paths)
        fallback.cache_clear()

    yield install
    fallback.cache_clear()


def drawn(face: Face, text: str) -> Image.Image:
    image = Image.new("RGB", (200, 40), "white")
    face.draw(ImageDraw.Draw(image), (2, 2), text, (0, 0, 0))
    return image


def test_letters_without_a_font_become_a_mark(installed: Callable[[list[str]], None]) -> None:
    installed([])
    face = Face(16)
    assert has_missing_letters(f"a {CHINESE}")
    assert face.getlength(f"a {CHINESE}{CHINESE}") == face.getlength(f"a {MARK}")
    assert drawn(face, CHINESE) == drawn(face, MARK)


def test_a_font_of_the_system_fills_in(
    installed: Callable[[list[str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # DejaVu Sans Mono in place of a font with Chinese letters
    other = dejavu().replace("DejaVuSans", "DejaVuSansMono")
    letters = {dejavu(): frozenset("ab"), other: frozenset("c")}
    monkeypatch.setattr(fonts, "letters_of", letters.__getitem__)
    installed([other])
    assert not has_missing_letters("abc")
    assert Face(16).getlength("abc") == pytest.approx(
        Face(16).getlength("ab") + fonts._truetype(other, 16).getlength("c")
    )


def test_what_is_not_seen_needs_no_font(installed: Callable[[list[str]], None]) -> None:
    installed([])
    joined = "a\u200d\ufe0fb"
    assert not has_missing_letters(joined)
    assert drawn(Face(16), joined) == drawn(Face(16), "ab")


def test_a_text_can_be_centred() -> None:
    image = Image.new("L", (100, 30), 255)
    Face(16).draw(ImageDraw.Draw(image.convert("RGB")), (50, 2), "mm", (0, 0, 0), centred=True)
    pixels = Image.new("RGB", (100, 30), "white")
    Face(16).draw(ImageDraw.Draw(pixels), (50, 2), "mm", (0, 0, 0), centred=True)
    columns = [
        x for x in range(100) if any(pixels.getpixel((x, y)) != (255,) * 3 for y in range(30))
    ]
    assert abs((columns[0] + columns[-1]) / 2 - 50) < 3
