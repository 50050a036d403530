"""Pictures within the page itself, of moderate size, that open in full when clicked."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from rlfactory.report.page.markup import Markup, join, tag, void
from rlfactory.report.report import Picture

LARGEST = 1600  # pixels on a side
QUALITY = 84
TINY = 200  # a picture this small is enlarged with hard edges


@dataclass(frozen=True)
class Embedded:
    """A picture as an address that holds it."""

    address: str
    width: int
    height: int


def embed(path: Path) -> Embedded:
    """A file as WebP, or as PNG where that is smaller; OSError if it can't be read."""
    try:
        with Image.open(path) as opened:
            image = opened.convert("RGB")
    except (SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise OSError(f"{path} is no picture ({error})") from error
    image.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    forms = {kind: _encoded(image, kind) for kind in ("webp", "png")}
    kind = min(forms, key=lambda kind: len(forms[kind]))
    content = base64.b64encode(forms[kind]).decode()
    return Embedded(f"data:image/{kind};base64,{content}", *image.size)


def _encoded(image: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    if kind == "webp":
        image.save(buffer, "webp", quality=QUALITY, method=4)
    else:
        image.save(buffer, "png", optimize=True)
    return buffer.getvalue()


def pictures(shown: Sequence[tuple[Picture, Embedded]]) -> Markup:
    """The figures, those of a row together under its name."""
    names = dict.fromkeys(picture.row for picture, _ in shown)
    groups = []
    for name in names:
        figures = [_figure(*pair) for pair in shown if pair[0].row == name]
        heading = tag("h3", name) if name else None
        groups.append(join(heading, tag("div", *figures, class_="pictures")))
    return join(*groups)


def _figure(picture: Picture, image: Embedded) -> Markup:
    caption = picture.caption or picture.row
    shape = "wide" if image.width > 1.8 * image.height else None
    tiny = "tiny" if max(image.width, image.height) <= TINY else None
    size = {"width": image.width, "height": image.height}
    alt = f"{picture.row}: {caption}" if picture.row and picture.row != caption else caption
    shown = void("img", src=image.address, alt=alt, class_=tiny, **size)
    button = tag("button", shown, type="button", class_="enlarge", aria_label=f"Enlarge: {alt}")
    return tag("figure", button, tag("figcaption", caption), class_=shape)
