"""Text with Pillow in any script: DejaVu Sans, then fonts of the system, then a mark.

A text is cut into pieces by the first font that has all letters of a piece. What no font has is
replaced by `[?]`, so that nothing looks like empty boxes.
"""

import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import ImageFont

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

FALLBACKS = (
    *("NotoSansCJK", "NotoSansSC", "SourceHanSans", "wqy-", "DroidSansFallback", "PingFang"),
    *("Hiragino Sans GB", "msyh", "simsun", "Arial Unicode", "NotoSans-", "NotoEmoji-", "Symbola"),
    *("NotoSansArabic", "NotoSansHebrew", "NotoSansDevanagari", "NotoSansThai"),
    *("seguisym", "FreeSans"),
)
"""The beginnings of the names of font files with letters that DejaVu Sans lacks."""
MARK = "[?]"
"""Stands for letters that no font has."""
_INVISIBLE = ("Cf", "Me")  # joiners and the like, which have no glyph of their own


class Face:
    """A font of one size with its fallbacks.

    Args:
        size: pixels.
        bold: whether DejaVu Sans is bold; the others have one weight.
    """

    def __init__(self, size: int, *, bold: bool = False) -> None:
        self.size, self.path = size, dejavu(bold=bold)

    def getlength(self, text: str) -> float:
        """The width of a text in pixels."""
        return sum(font.getlength(piece) for font, piece in self._pieces(text))

    def draw(
        self,
        pen: "ImageDraw",
        corner: tuple[float, float],
        text: str,
        ink: tuple[int, int, int],
        *,
        centred: bool = False,
    ) -> None:
        """Draw a text with its top left at `corner`, or the middle of its top if `centred`."""
        x, y = corner
        if centred:
            x -= self.getlength(text) / 2
        baseline = y + _truetype(self.path, self.size).getmetrics()[0]
        for font, piece in self._pieces(text):
            pen.text((x, baseline), piece, ink, font, anchor="ls")
            x += font.getlength(piece)

    def _pieces(self, text: str) -> Iterator[tuple[ImageFont.FreeTypeFont, str]]:
        """The text piece by piece, each with the font that draws it."""
        for path, letters in groupby(filter(_is_visible, text), key=self._path_of):
            if path is None:
                yield _truetype(self.path, self.size), MARK
            else:
                yield _truetype(path, self.size), "".join(letters)

    def _path_of(self, letter: str) -> str | None:
        return self.path if letter in letters_of(self.path) else fallback(letter)


def dejavu(*, bold: bool = False) -> str:
    """DejaVu Sans from matplotlib's files, so that it is the same on every machine."""
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return f"{matplotlib.get_data_path()}/fonts/ttf/{name}"


def has_missing_letters(text: str) -> bool:
    """Whether a text has letters that no font here has."""
    known = letters_of(dejavu())
    return any(c not in known and fallback(c) is None for c in filter(_is_visible, text))


@cache
def fallback(letter: str) -> str | None:
    """The first font of the system that has a letter; None if none has it."""
    return next((path for path in system_fonts() if letter in letters_of(path)), None)


@cache
def system_fonts() -> list[str]:
    """Files of installed fonts with letters that DejaVu Sans lacks."""
    from matplotlib.font_manager import findSystemFonts

    names = {path: Path(path).name for path in sorted(findSystemFonts())}
    regular = {path: name for path, name in names.items() if "Bold" not in name}
    having = ([p for p, name in regular.items() if name.startswith(own)] for own in FALLBACKS)
    return [path for found in having for path in found[:1]]


@cache
def letters_of(path: str) -> frozenset[str]:
    """The letters that a font has; none where it can't be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()


def _is_visible(letter: str) -> bool:
    is_selector = "\ufe00" <= letter <= "\ufe0f"
    return not is_selector and unicodedata.category(letter) not in _INVISIBLE


@cache
def _truetype(path: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, size)
