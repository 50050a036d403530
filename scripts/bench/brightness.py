"""A reward that costs next to nothing, so that an iteration is the trainer's own time."""

from typing import Any


def brightness(images: Any, *_: Any) -> tuple[Any, dict[str, Any]]:
    """The mean of each picture `[B, 3, H, W]`, `[B]`, and no more to tell."""
    return images.float().mean((1, 2, 3)), {}
