"""White paper for pictures: tiles of one size, wrapped text in a clean font, thin frames."""

from functools import cache
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from rlfactory.pillow import to_pil

if TYPE_CHECKING:
    from torch import Tensor

INK = (34, 34, 40)
FAINT = (120, 122, 130)
HAIRLINE = (222, 222, 228)
GOOD = (34, 150, 90)
BAD = (206, 62, 70)
_SMALLEST, _LARGEST = 160, 512

Font = ImageFont.FreeTypeFont


@cache
def font(size: int, *, bold: bool = False) -> Font:
    """DejaVu Sans, which comes with matplotlib and so is everywhere the same."""
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/{name}", size)


def tile(image: "Tensor") -> Image.Image:
    """A picture from `[3, H, W]` uint8: small ones grow by a whole factor, pixels kept sharp."""
    return sized(to_pil(image))


def sized(picture: Image.Image) -> Image.Image:
    """The same of a picture."""
    longest = max(picture.size)
    factor = -(-_SMALLEST // longest)
    if factor > 1:
        size = (picture.width * factor, picture.height * factor)
        return picture.resize(size, Image.Resampling.NEAREST)
    if longest > _LARGEST:
        picture.thumbnail((_LARGEST, _LARGEST), Image.Resampling.LANCZOS)
    return picture


def wrap(text: str, face: Font, width: int, lines: int) -> list[str]:
    """Break `text` into at most `lines` lines of at most `width` pixels, an ellipsis if cut."""
    words, rows = text.split(), [""]
    for word in words:
        longer = f"{rows[-1]} {word}".strip()
        if face.getlength(longer) <= width or not rows[-1]:
            rows[-1] = longer
        else:
            rows.append(word)
    if len(rows) > lines:
        rows = [*rows[: lines - 1], " ".join(rows[lines - 1 :])]
    return [_fit(row, face, width) for row in rows]


def _fit(row: str, face: Font, width: int) -> str:
    if face.getlength(row) <= width:
        return row
    while row and face.getlength(row + "…") > width:
        row = row[:-1]
    return row.rstrip() + "…"


def line_height(face: Font) -> int:
    """Pixels from one line of text to the next."""
    return round(1.3 * face.size)


def page(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """White paper and its pen."""
    image = Image.new("RGB", (width, height), "white")
    return image, ImageDraw.Draw(image)


def paste(
    paper: Image.Image,
    picture: Image.Image,
    corner: tuple[int, int],
    *,
    frame: tuple[int, int, int] | None = None,
) -> None:
    """Put a picture at `corner`; a coloured frame of 3 pixels, or a hairline, goes outside it."""
    x, y = corner
    thick = 1 if frame is None else 3
    box = (x - thick, y - thick, x + picture.width + thick - 1, y + picture.height + thick - 1)
    ImageDraw.Draw(paper).rectangle(box, outline=frame or HAIRLINE, width=thick)
    paper.paste(picture, corner)
