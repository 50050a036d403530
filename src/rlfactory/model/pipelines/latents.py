"""Latents and pixels: how the latents that a network sees follow from an autoencoder's own."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rlfactory.utils.pytree import to_device
from rlfactory.utils.sizes import PIXELS_TOGETHER


class Latents(ABC):
    """A family's latents: those of its autoencoder, normalised."""

    def decode(self, vae: Any, latents: Tensor) -> Tensor:
        """Pixels `[B, 3, H, W]`, of a video `[B, F, 3, H, W]`, in [-1, 1]."""
        return vae.decode(self.raw(vae, latents).to(vae.dtype), return_dict=False)[0]

    def encode(self, vae: Any, pixels: Tensor) -> Tensor:
        """The inverse of `decode`, as far as the autoencoder is."""
        found = vae.encode(pixels.to(vae.dtype))
        # SANA's gives latents, the others a distribution of them
        return self.normal(vae, found.latent if "latent" in found else found.latent_dist.mode())

    @abstractmethod
    def raw(self, vae: Any, latents: Tensor) -> Tensor:
        """The latents that the autoencoder decodes."""

    @abstractmethod
    def normal(self, vae: Any, raw: Tensor) -> Tensor:
        """The inverse of `raw`."""


class Scaled(Latents):
    """Latents that the autoencoder's configuration scales and shifts."""

    def raw(self, vae: Any, latents: Tensor) -> Tensor:
        return latents / vae.config.scaling_factor + (vae.config.get("shift_factor") or 0.0)

    def normal(self, vae: Any, raw: Tensor) -> Tensor:
        return (raw - (vae.config.get("shift_factor") or 0.0)) * vae.config.scaling_factor


class Normalised(Latents):
    """Latents of an autoencoder of videos whose configuration has their means and standard
    deviations; an image is a video of one frame.
    """

    def decode(self, vae: Any, latents: Tensor) -> Tensor:
        if latents.ndim == 4:
            return super().decode(vae, latents[:, :, None])[:, :, 0]
        return super().decode(vae, latents).transpose(1, 2)

    def encode(self, vae: Any, pixels: Tensor) -> Tensor:
        if pixels.ndim == 4:
            return super().encode(vae, pixels[:, :, None])[:, :, 0]
        return super().encode(vae, pixels.transpose(1, 2))

    def raw(self, vae: Any, latents: Tensor) -> Tensor:
        mean, std = self._statistics(vae, latents.device)
        return latents * std + mean

    def normal(self, vae: Any, raw: Tensor) -> Tensor:
        mean, std = self._statistics(vae, raw.device)
        return (raw - mean) / std

    def _statistics(self, vae: Any, device: torch.device) -> list[Tensor]:
        """Mean and standard deviation, for `[B, C, t, h, w]`."""
        listed = (vae.config.latents_mean, vae.config.latents_std)
        return [to_device(torch.tensor(values).view(1, -1, 1, 1, 1), device) for values in listed]


class Patches(Latents):
    """Latents `[B, 4 C, h, w]`, each a patch of 2 x 2 of an autoencoder's C channels, normalised by
    the statistics that it holds (FLUX.2, FLUX.3, ERNIE-Image); `epsilon` is added to the variances
    (None: that of its configuration).
    """

    def __init__(self, epsilon: float | None = None) -> None:
        self.epsilon = epsilon

    def raw(self, vae: Any, latents: Tensor) -> Tensor:
        mean, std = self._statistics(vae)
        return F.pixel_shuffle((latents * std + mean).to(vae.dtype), 2)

    def normal(self, vae: Any, raw: Tensor) -> Tensor:
        mean, std = self._statistics(vae)
        return (F.pixel_unshuffle(raw, 2) - mean) / std

    def _statistics(self, vae: Any) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of patches, for `[B, 4 C, h, w]`."""
        mean, variance = (b.view(1, -1, 1, 1) for b in (vae.bn.running_mean, vae.bn.running_var))
        epsilon = vae.config.batch_norm_eps if self.epsilon is None else self.epsilon
        return mean, (variance + epsilon).sqrt()


@torch.no_grad()
def decode_latents(decode: Callable[[Tensor], Tensor], latents: Tensor, scale: int) -> Tensor:
    """Images `[B, 3, H, W]` of latents `[B, C, h, w]`, uint8, on the CPU; or videos. `decode` gives
    pixels in [-1, 1], `scale` for each latent along an edge. Large images are decoded a few at a
    time, which takes less memory and no longer.
    """
    pixels = scale**2 * latents[0, 0].numel()
    parts = torch.split(latents, max(PIXELS_TOGETHER // pixels, 1))
    images = [(to_unit(decode(part)) * 255).round().to(torch.uint8) for part in parts]
    return torch.cat(images).cpu()


@torch.no_grad()
def encode_pixels(encode: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Latents `[B, C, h, w]`, float32, of images `[B, 3, H, W]`, uint8, on the autoencoder's
    device; or of videos. `encode` is given pixels in [-1, 1].
    """
    parts = torch.split(images, max(PIXELS_TOGETHER // (images[0].numel() // 3), 1))
    return torch.cat([encode(part.float() / 127.5 - 1).float() for part in parts])


def to_unit(pixels: Tensor) -> Tensor:
    """Pixels in [-1, 1] as float32 in [0, 1], clipped."""
    return (pixels.float() / 2 + 0.5).clamp(0, 1)
