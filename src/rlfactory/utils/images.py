"""Tensors of images and videos to Pillow images, without importing torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from PIL import Image

if TYPE_CHECKING:
    from torch import Tensor


def read_image(path: Path) -> Image.Image:
    """An image file in RGB; OSError if it can't be read or is none."""
    if not path.is_file():  # a pipe would be waited for
        raise OSError(f"{path} is no file")
    try:
        with Image.open(path) as opened:
            return opened.convert("RGB")
    except (SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise OSError(f"{path} is not an image ({error})") from error


def to_pil(image: "Tensor") -> Image.Image:
    """An image `[3, H, W]` uint8, on any device."""
    return Image.fromarray(image.permute(1, 2, 0).cpu().contiguous().numpy())


def from_pil(image: Image.Image) -> "Tensor":
    """An RGB image as `[3, H, W]` uint8 on the CPU."""
    import torch

    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return pixels.view(image.height, image.width, 3).permute(2, 0, 1)


def resize_to_square(image: "Tensor", side: int | None) -> "Tensor":
    """An image `[3, H, W]` uint8 as a square, by Pillow's bicubic filter; as it is for None."""
    if side is None or image.shape[1:] == (side, side):
        return image
    return from_pil(to_pil(image).resize((side, side), Image.Resampling.BICUBIC))


def picture(sample: "Tensor") -> Image.Image:
    """One picture of a sample: the image `[3, H, W]`, or the contact sheet of a video."""
    return to_pil(sample) if sample.ndim == 3 else contact_sheet(sample)


def contact_sheet(video: "Tensor") -> Image.Image:
    """Four evenly spaced frames of a video `[F, 3, H, W]` uint8 in two rows.

    A video of one frame is that frame.
    """
    frames = batch_to_pil(video[evenly_spaced(len(video), 4)])
    if len(frames) == 1:
        return frames[0]
    width, height = frames[0].size
    sheet = Image.new("RGB", (2 * width, -(-len(frames) // 2) * height), "white")
    for number, frame in enumerate(frames):
        sheet.paste(frame, (number % 2 * width, number // 2 * height))
    return sheet


def save_animation(pages: Sequence[Image.Image], file: BinaryIO | Path, frame_rate: int) -> None:
    """Write a GIF of so many pages a second that repeats."""
    first, *others = pages
    duration = round(1000 / frame_rate)
    first.save(file, "GIF", save_all=True, append_images=others, duration=duration, loop=0)


def evenly_spaced(total: int, count: int) -> list[int]:
    """The numbers of at most `count` of `total` frames, the first and the last among them."""
    if count == 1:
        return [total // 2]
    steps = min(count, total) - 1
    return [round(number * (total - 1) / max(steps, 1)) for number in range(steps + 1)]


def batch_to_pil(images: "Tensor") -> list[Image.Image]:
    """Images `[B, 3, H, W]` uint8, on any device."""
    return [Image.fromarray(row) for row in images.permute(0, 2, 3, 1).cpu().contiguous().numpy()]
