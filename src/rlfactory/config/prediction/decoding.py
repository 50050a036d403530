"""The work of decoding latents by an autoencoder, from its configuration."""

from collections.abc import Mapping
from typing import Any

from rlfactory.config.memory.activations import autoencoder_widths, latent_channels
from rlfactory.config.prediction.work import Work

Config = Mapping[str, Any]


def decoding(autoencoder: Config, area: int, images: int, frames: int = 1) -> Work:
    """The work of decoding images of `area` latents, or videos with `frames` latents in time.

    That of a video was counted: its convolutions are over three frames, and each latent after the
    first is four frames.
    """
    if "decoder_block_out_channels" in autoencoder:
        return _deep_decoding(autoencoder, area, images)
    one = _decoding_of_image(autoencoder, area // frames, images)
    if "dim_mult" not in autoencoder:
        return one
    flops, moved, launches = (
        first + further * (frames - 1) for first, further in VIDEO_FACTORS.values()
    )
    return Work(one.flops * flops, one.bytes * moved, one.launches * launches, rate=one.rate)


def _decoding_of_image(autoencoder: Config, area: int, images: int) -> Work:
    widths = autoencoder_widths(autoencoder)
    layers = autoencoder.get("layers_per_block") or autoencoder["num_res_blocks"]
    pixels, channels = float(images * area), widths[-1]
    convolutions = pixels * latent_channels(autoencoder) * channels
    elements, count = 0.0, 2
    attention = pixels * (4 * channels**2 / 9 + 2 * area * channels / 9)
    residuals = [(pixels, channels, channels)] * 2
    for level, width in enumerate(widths[::-1]):
        for _ in range(layers + 1):
            residuals.append((pixels, channels, width))
            channels = width
        if level < len(widths) - 1:
            pixels *= 4
            convolutions += pixels * channels**2
            elements += pixels * channels
    for size, inner, outer in residuals:
        convolutions += size * (inner * outer + outer**2 + inner * outer * (inner != outer) / 9)
        elements += size * (inner + outer)
        count += 1
    convolutions += pixels * channels * 3 + attention
    return Work(18.0 * convolutions, DECODING_BYTES * elements, 9.0 * count, rate="convolution")


VIDEO_FACTORS = {"flops": (2.02, 6.35), "bytes": (2.79, 10.65), "launches": (2.28, 2.63)}
"""What decoding the first latent of a video, and each further one, takes of an image's work."""
DECODING_BYTES = 22.0
"""Bytes that decoding moves for each pixel and channel into and out of its blocks, in float32."""
DEEP_BYTES = 40.0
"""The same of an autoencoder of deep compression."""


def _deep_decoding(autoencoder: Config, area: int, images: int) -> Work:
    """That of `AutoencoderDC`: residual blocks at the levels of many pixels, linear attention and
    gated convolutions at those of few.
    """
    widths, head = autoencoder_widths(autoencoder), autoencoder["attention_head_dim"]
    flops = elements = launches = 0.0
    pixels, former = float(images * area), latent_channels(autoencoder)
    flops += 18 * pixels * former * widths[-1]
    kinds, layers = autoencoder["decoder_block_types"], autoencoder["decoder_layers_per_block"]
    for level in reversed(range(len(widths))):
        width = widths[level]
        if level < len(widths) - 1:
            pixels *= 4
            flops += 18 * pixels * former * width
            elements, launches = elements + pixels * width, launches + 12
        is_residual = kinds[level] == "ResBlock"
        attended = 34 * width**2 + (302 + 14 * head) * width
        flops += layers[level] * pixels * (36 * width**2 if is_residual else attended)
        elements += layers[level] * pixels * 2 * width
        launches += layers[level] * (11 if is_residual else 33)
        former = width
    flops += 18 * pixels * former * 3
    return Work(flops, DEEP_BYTES * elements, launches, rate="convolution")
