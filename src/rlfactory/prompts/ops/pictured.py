"""Prompts with a picture: a text that is told apart from others by its picture too. Torch-free."""

from collections.abc import Iterable
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps
from PIL.ExifTags import Base

from rlfactory.prompts.ops.chat import ChatText
from rlfactory.utils.errors import UserError

Source = str | bytes
"""The path of a picture's file, or the file's content."""
UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)
"""What Pillow raises for a file that is no picture, or one of too many pixels."""


class PictureError(UserError, ValueError):
    """A picture that cannot be read; the message names its file."""


class PicturedText(str):
    """A prompt's text with its picture, in the file `source`, as a string whose identity includes
    it.

    It equals another only with the same picture, and no plain string, so that groups, held-out
    prompts and embeddings are those of both. Formatted or written, it is the text.
    """

    source: Source

    def __new__(cls, text: str, source: Source) -> "PicturedText":
        made = super().__new__(cls, text)
        made.source = source
        return made

    def __getnewargs__(self) -> tuple[str, Source]:  # type: ignore[override]
        return str(self), self.source

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PicturedText):
            return False
        return str(self) == str(other) and self.source == other.source

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((str(self), self.source))

    @property
    def content(self) -> bytes:
        """The picture's file; PictureError where it can't be read."""
        if isinstance(self.source, bytes):
            return self.source
        try:
            return Path(self.source).read_bytes()
        except OSError as error:
            raise PictureError(
                f"{self.source}: cannot read the picture: {error.strerror}"
            ) from error

    @cached_property
    def identity(self) -> str:
        """A plain string that only this text with this picture has."""
        return f"{self!s} [picture {sha256(self.content).hexdigest()[:32]}]"

    def open(self) -> Image.Image:
        """The picture, RGB; PictureError where it can't be read."""
        try:
            return upright(Image.open(BytesIO(self.content)))
        except UNREADABLE as error:
            shown = self.source if isinstance(self.source, str) else repr(str(self))
            raise PictureError(f"{shown}: no picture that can be read: {error}") from error


def identity(prompt: str) -> str:
    """A plain string by which prompts are told apart: the text, with its picture if it has one; of
    a conversation all messages.
    """
    return str(getattr(prompt, "identity", prompt))


def pictured(text: str, picture: object, folder: Path | None = None) -> PicturedText:
    """A text with a picture: a path (relative to `folder`), a file's content, a Pillow image, or a
    row of a column of images of `datasets`. ValueError where it is none of these, or can't be read.
    """
    if isinstance(text, ChatText):
        raise ValueError("a picture goes with a text, and the prompt is a list of messages")
    made = PicturedText(text, _source(picture, folder or Path()))
    if problem := picture_problem(made.source):
        raise ValueError(problem)
    return made


def _source(picture: Any, folder: Path) -> Source:
    if isinstance(picture, dict) and "bytes" in picture:
        picture = picture["bytes"] or picture.get("path")
    if isinstance(picture, Image.Image):
        return png_of(picture)
    if isinstance(picture, bytes):
        return picture
    if isinstance(picture, str | Path) and str(picture):
        return str(folder.absolute() / Path(picture).expanduser())
    raise ValueError(f"a picture is the path of a file, not {picture!r:.60}")


def upright(picture: Image.Image) -> Image.Image:
    """A picture in RGB, turned as its camera says (EXIF), as diffusers does too."""
    turned = ImageOps.exif_transpose(picture)
    if turned.mode.startswith("I"):  # 16 bits, which Pillow would cut at 255: white
        turned = turned.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    return turned.convert("RGB")


def png_of(picture: Image.Image) -> bytes:
    """A picture's PNG file."""
    file = BytesIO()
    upright(picture).save(file, "PNG")
    return file.getvalue()


def picture_size(source: Source) -> tuple[int, int]:
    """Height and width as seen, by the file's header; raises `UNREADABLE` where it has none."""
    with Image.open(BytesIO(source) if isinstance(source, bytes) else source) as picture:
        edges = picture.height, picture.width
        # a damaged entry may be a text
        return edges[::-1] if picture.getexif().get(Base.Orientation) in (5, 6, 7, 8) else edges


def picture_problem(source: Source) -> str | None:
    """Why a picture can't be read, as far as its file's header tells; None if it can."""
    name = "the picture" if isinstance(source, bytes) else source
    try:
        picture_size(source)
    except FileNotFoundError:
        return f"there is no picture {name}"
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or "no picture"
        reason = "too many pixels" if isinstance(error, Image.DecompressionBombError) else reason
        return f"{name} can't be read as a picture ({reason}); save it as PNG or JPEG"
    return None


ASPECT_TOLERANCE = 0.05
"""How far a picture's aspect ratio may be from the model's, as a share of it."""


def size_problem(source: Source, size: tuple[int, int]) -> str | None:
    """Why a picture can't be resized to a height and width: it has another aspect ratio."""
    height, width = picture_size(source)
    if abs(width * size[0] / (height * size[1]) - 1) <= ASPECT_TOLERANCE:
        return None
    name = "the picture" if isinstance(source, bytes) else source
    return (
        f"{name} has {height} x {width} pixels, and pictures are resized to model.size,"
        f" {size[0]} x {size[1]}, which has another aspect ratio"
    )


def unfitting(
    picture: object, folder: Path, size: tuple[int, int] | None
) -> tuple[str, tuple[int, int] | None] | None:
    """Why a picture, in any form that `pictured` takes, can't be read, or not resized to a height
    and width (None: any); None if it can.

    With the reason comes a size of the picture's aspect ratio with about as many pixels, in
    multiples of 16, where that is what does not fit.
    """
    try:
        source = pictured("", picture, folder).source
    except ValueError as error:
        return str(error), None
    if size is None or not (fault := size_problem(source, size)):
        return None
    edges = picture_size(source)
    scale = (size[0] * size[1] / (edges[0] * edges[1])) ** 0.5
    height, width = (max(round(edge * scale / 16), 1) * 16 for edge in edges)
    return fault, (height, width)


def mismatch(texts: Iterable[str], takes_pictures: bool) -> str | None:
    """The fault of the first text that has a picture where the model takes none, or has none
    where it takes one.
    """
    for text in texts:
        if isinstance(text, PicturedText) != takes_pictures:
            lacks = f"the prompt {text[:60]!r} has no picture, and this model edits pictures"
            return lacks if takes_pictures else f"the prompt {text[:60]!r} has a picture"
    return None
