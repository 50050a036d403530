"""Images inside a page, as `data:` addresses."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from rlfactory.utils.images import read_image

LARGEST = 1600  # pixels on a side
QUALITY = 84
TINY = 200  # an image this small is enlarged with hard edges


@dataclass(frozen=True)
class EmbeddedImage:
    """An image as a `data:` address."""

    address: str
    width: int
    height: int

    @property
    def is_tiny(self) -> bool:
        """Whether it is enlarged with sharp pixels."""
        return max(self.width, self.height) <= TINY


def embed(path: Path, largest: int = LARGEST) -> EmbeddedImage:
    """Encode a file as WebP, or as PNG where that is smaller; OSError if it can't be read.

    Its longer side has at most `largest` pixels.
    """
    image = read_image(path)
    image.thumbnail((largest, largest), Image.Resampling.LANCZOS)
    webp, png = io.BytesIO(), io.BytesIO()
    image.save(webp, "webp", quality=QUALITY, method=4)
    image.save(png, "png", optimize=True)
    encoded = {"webp": webp.getvalue(), "png": png.getvalue()}
    kind = min(encoded, key=lambda kind: len(encoded[kind]))
    content = base64.b64encode(encoded[kind]).decode()
    return EmbeddedImage(f"data:image/{kind};base64,{content}", *image.size)
