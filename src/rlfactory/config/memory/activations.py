"""Activation memory of a network, by family: sampling, forward and backward pass.

The coefficients are bytes per token (or latent pixel) and channel of a block. They were counted on
networks of fake tensors at their full width (scripts/bench/ghost.py), where every storage that
autograd keeps is seen; tests compare the formulas with that count. docs/estimate.md explains them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlfactory.model.pipelines.families import FAMILIES

Family = Literal["flux", "flux2", "sd3", "qwen_image", "z_image", "sana", "wan", "unet"]
Config = Mapping[str, Any]

PIXELS_TOGETHER = 1024**2
"""Pixels of images that are decoded together, at most."""
LARGEST_TILE = 512
"""Pixels of a tile's edge with `memory.vae_tiling`."""
NETWORK_CLASSES = {None, *(family.network for family in FAMILIES)}


class UnknownNetwork(ValueError):
    """A network of a family without memory formulas."""


@dataclass(frozen=True)
class ComputeOptions:
    """What activation memory depends on besides the network.

    Attributes:
        half: computed in half precision by autocast, else in float32.
        full: all weights are trained, else LoRA adapters.
        rank: the rank of the adapters.
        checkpointing: gradient checkpointing, which recomputes blocks in the backward pass.
    """

    half: bool = False
    full: bool = False
    rank: int = 32
    checkpointing: bool = False

    @property
    def element_size(self) -> int:
        """Bytes of an activation's element."""
        return 2 if self.half else 4

    def coefficient(self, lora: float, lora_half: float, full: float, full_half: float) -> float:
        """The one of four coefficients that these options select."""
        if self.full:
            return full_half if self.half else full
        return lora_half if self.half else lora


@dataclass(frozen=True)
class ActivationBytes:
    """Activation memory of one training item or sample, in bytes.

    Attributes:
        saved: what autograd keeps after a forward pass.
        backward: the most that the backward pass holds on top of `saved`.
        sampling: the most that a forward pass without a gradient holds.
    """

    saved: float
    backward: float
    sampling: float


def family_of(network: Config) -> Family:
    """The family of a network's configuration.

    A saved configuration names its class; a published one is recognised by its keys.

    Raises:
        UnknownNetwork: if it is of another family.
    """
    if network.get("_class_name") not in NETWORK_CLASSES:
        raise UnknownNetwork(f"{network['_class_name']} is of no known family")
    if "timestep_guidance_channels" in network:
        return "flux2"
    if "num_single_layers" in network:
        return "flux"
    if "caption_projection_dim" in network:
        return "sd3"
    if "zero_cond_t" in network:
        return "qwen_image"
    if "n_refiner_layers" in network:
        return "z_image"
    if "num_cross_attention_heads" in network:
        return "sana"
    if "ffn_dim" in network and "freq_dim" in network:
        return "wan"
    if "down_block_types" in network and "cross_attention_dim" in network:
        return "unet"
    raise UnknownNetwork("no network of a family that is known")


def activation_bytes(
    network: Config, area: int, text: int, options: ComputeOptions
) -> ActivationBytes:
    """The activation memory of one item of `area` latents, in space and time, and `text`
    tokens."""
    formulas = {
        "flux": _flux,
        "flux2": _flux2,
        "sd3": _sd3,
        "qwen_image": _qwen_image,
        "z_image": _z_image,
        "sana": _sana,
        "wan": _wan,
        "unet": _unet,
    }
    return formulas[family_of(network)](network, area, text, options)


def _flux(network: Config, area: int, text: int, options: ComputeOptions) -> ActivationBytes:
    """Double blocks, then single blocks, all on the joint sequence of image and text tokens."""
    tokens = area // 4 + text
    width = network["num_attention_heads"] * network["attention_head_dim"]
    double, single = network["num_layers"], network["num_single_layers"]
    double_bytes = tokens * (
        width * options.coefficient(52.3, 28.7, 96.2, 68.1) + _adapters(4, options)
    )
    single_bytes = tokens * (
        width * options.coefficient(48.2, 24.3, 84.1, 60.1) + _adapters(3, options)
    )
    row = tokens * width
    backward = row * options.coefficient(44.0, 50.0, 44.0, 50.0)
    sampling = row * options.coefficient(60.3, 56.0, 60.3, 56.0)
    blocks = ((double, double_bytes), (single, single_bytes))
    return _of_blocks(blocks, row, backward, sampling, options)


def _sd3(network: Config, area: int, text: int, options: ComputeOptions) -> ActivationBytes:
    """Joint blocks; some have a second attention on the image alone, the last drops the text."""
    image = area // network["patch_size"] ** 2
    tokens, layers = image + text, network["num_layers"]
    width = network["num_attention_heads"] * network["attention_head_dim"]
    seconds = len(network.get("dual_attention_layers") or ())
    row = width * options.coefficient(56.6, 28.7, 100.3, 74.2) + _adapters(4, options)
    second = image * width * options.coefficient(24.2, 12.1, 40.2, 38.2)
    backward = tokens * width * options.coefficient(24.0, 13.7, 24.0, 15.7)
    sampling = tokens * width * options.coefficient(45.2, 28.1, 45.2, 28.1)
    if options.checkpointing:
        inputs = (layers + 1) * tokens * width * options.element_size
        return ActivationBytes(
            inputs, tokens * row + (second if seconds else 0) + backward, sampling
        )
    joint = ((layers - 1) * tokens + image + 0.6 * text) * row
    return ActivationBytes(joint + seconds * second, backward, sampling)


def _flux2(network: Config, area: int, text: int, options: ComputeOptions) -> ActivationBytes:
    """As FLUX.1's, with larger MLPs; adapters are on one layer of a single block."""
    tokens = area // 4 + text
    row = tokens * network["num_attention_heads"] * network["attention_head_dim"]
    double, single = network["num_layers"], network["num_single_layers"]
    of_double = row * options.coefficient(76.1, 38.6, 116.2, 78.1) + tokens * _adapters(4, options)
    of_single = row * options.coefficient(68.0, 34.3, 100.1, 66.1) + tokens * _adapters(1, options)
    backward = row * options.coefficient(75.8, 48.6, 75.8, 48.6)
    sampling = row * options.coefficient(117.2, 73.5, 85.2, 51.7)
    blocks = ((double, of_double), (single, of_single))
    return _of_blocks(blocks, row, backward, sampling, options)


def _qwen_image(network: Config, area: int, text: int, options: ComputeOptions) -> ActivationBytes:
    """Double blocks on the sequence of image and text tokens."""
    tokens = area // 4 + text
    row = tokens * network["num_attention_heads"] * network["attention_head_dim"]
    block = row * options.coefficient(56.3, 28.7, 100.3, 74.2) + tokens * _adapters(4, options)
    backward = row * options.coefficient(31.0, 25.0, 31.0, 25.0)
    sampling = row * options.coefficient(54.5, 36.4, 54.5, 36.4)
    return _of_blocks(((network["num_layers"], block),), row, backward, sampling, options)


def _z_image(network: Config, area: int, text: int, options: ComputeOptions) -> ActivationBytes:
    """Blocks on the sequence of image and text tokens, after some on each of the two alone."""
    tokens = whole_groups(area // 4) + whole_groups(text)
    layers, row = network["n_layers"] + network["n_refiner_layers"], tokens * network["dim"]
    block = row * options.coefficient(76.1, 38.3, 130.8, 113.4) + tokens * _adapters(4, options)
    backward = row * options.coefficient(28.0, 26.0, 28.0, 26.0)
    sampling = row * options.coefficient(63.1, 33.4, 63.1, 33.4)
    return _of_blocks(((layers, block),), row, backward, sampling, options)


def _sana(network: Config, area: int, text: int, options: ComputeOptions) -> ActivationBytes:
    """Blocks on the image's tokens: linear attention, attention to the text, convolutions."""
    image = area // network["patch_size"] ** 2
    width = network["num_attention_heads"] * network["attention_head_dim"]
    row = image * width
    block = row * options.coefficient(148.4, 74.2, 178.4, 125.2) + image * _adapters(6, options)
    block += text * (width * options.coefficient(12.7, 6.4, 19.4, 20.7) + _adapters(2, options))
    backward = row * options.coefficient(20.0, 16.0, 20.0, 16.0)
    sampling = (row + 0.1 * text * width) * options.coefficient(56.0, 30.5, 56.0, 31.0)
    return _of_blocks(((network["num_layers"], block),), row, backward, sampling, options)


def _wan(network: Config, area: int, text: int, options: ComputeOptions) -> ActivationBytes:
    """Blocks on the video's tokens, whose cross-attention reads keys and values of the text's."""
    width = network["num_attention_heads"] * network["attention_head_dim"]
    tokens = area // math.prod(network["patch_size"])
    row = tokens * width
    block = row * options.coefficient(79.2, 50.1, 135.0, 94.6) + tokens * _adapters(8, options)
    block += text * width * options.coefficient(13.0, 7.2, 19.0, 12.6)
    backward = row * options.coefficient(46.5, 21.2, 46.5, 21.2)
    sampling = row * options.coefficient(63.5, 30.1, 63.5, 22.5)
    return _of_blocks(((network["num_layers"], block),), row, backward, sampling, options)


def whole_groups(tokens: int) -> int:
    """A multiple of 32, to which Z-Image pads its sequences."""
    return -(-tokens // 32) * 32


def _of_blocks(
    blocks: Sequence[tuple[int, float]],
    row: int,
    backward: float,
    sampling: float,
    options: ComputeOptions,
) -> ActivationBytes:
    """Of a transformer whose blocks, a number and the bytes that one saves, read `row` elements."""
    if options.checkpointing:
        inputs = (sum(count for count, _ in blocks) + 1) * row * options.element_size
        return ActivationBytes(inputs, max(saved for _, saved in blocks) + backward, sampling)
    return ActivationBytes(sum(count * saved for count, saved in blocks), backward, sampling)


def _unet(network: Config, area: int, text: int, options: ComputeOptions) -> ActivationBytes:
    """Residual convolution blocks, transformer blocks, and down- and upsamplers between levels."""
    residuals = transformers = layers = inputs = resampled = 0.0
    largest = widest = freed = 0.0
    for kind, pixels, channels_in, channels_out in unet_blocks(network, area):
        if kind == "residual":
            residuals += pixels * (channels_in + channels_out)
            widest = max(widest, pixels * (channels_in + channels_out))
            inputs += pixels * channels_in
            freed += pixels * channels_in  # by the backward pass, before the last transformer
        elif kind == "layer":
            layers += pixels * channels_in
        elif kind == "transformer":
            transformers += pixels * channels_in
            largest, freed = max(largest, pixels * channels_in), 0.0
        else:
            resampled += pixels * channels_in
    block = options.coefficient(105.0, 54.0, 126.0, 75.0)
    layer = options.coefficient(96.3, 50.0, 114.6, 68.0)
    backward = largest * options.coefficient(40.0, 18.1, 40.0, 18.1)
    sampling = max(
        largest * options.coefficient(104.0, 55.2, 104.0, 55.2),
        widest * options.coefficient(14.8, 11.2, 14.8, 11.2),
    )
    resampled_bytes = resampled * options.element_size
    if options.checkpointing:
        # a transformer's norm and its two projections lie outside of the recomputed part
        linear = network.get("use_linear_projection")
        projections = (12, 7, 12, 7) if linear else (16, 10, 16, 10)
        kept = (inputs + layers) * options.element_size + resampled_bytes
        kept += transformers * options.coefficient(*projections)
        recomputed = largest * layer + backward - freed * options.coefficient(4, 1, 4, 1)
        return ActivationBytes(kept, max(recomputed, 0.0), sampling)
    kept = residuals * options.coefficient(12, 8, 12, 10) + resampled_bytes
    kept += transformers * block + layers * layer
    return ActivationBytes(kept, backward, sampling)


def unet_blocks(network: Config, area: int) -> Iterator[tuple[str, int, int, int]]:
    """The blocks of a UNet in order: kind, pixels, input channels, output channels.

    Kinds are `residual`, `transformer` (of one layer), `layer` (each further one of it),
    `downsample` (with the pixels before it) and `upsample` (with those after it).
    """
    widths, layers = list(network["block_out_channels"]), network["layers_per_block"]
    depths = network.get("transformer_layers_per_block", 1)
    depths = list(depths) if isinstance(depths, Sequence) else [depths] * len(widths)
    pixels, channels = area, widths[0]
    skips = [channels]
    for level, (kind, width) in enumerate(zip(network["down_block_types"], widths, strict=True)):
        for _ in range(layers):
            yield "residual", pixels, channels, width
            if "Attn" in kind:
                yield from _transformer(pixels, width, depths[level])
            channels = width
            skips.append(channels)
        if level < len(widths) - 1:
            yield "downsample", pixels, channels, channels
            pixels //= 4
            skips.append(channels)
    yield "residual", pixels, channels, channels
    yield from _transformer(pixels, channels, depths[-1])
    yield "residual", pixels, channels, channels
    for level, (kind, width) in enumerate(
        zip(network["up_block_types"], widths[::-1], strict=True)
    ):
        for _ in range(layers + 1):
            yield "residual", pixels, channels + skips.pop(), width
            if "Attn" in kind:
                yield from _transformer(pixels, width, depths[-1 - level])
            channels = width
        if level < len(widths) - 1:
            pixels *= 4
            yield "upsample", pixels, channels, channels


def _transformer(pixels: int, width: int, depth: int) -> Iterator[tuple[str, int, int, int]]:
    for index in range(depth):
        yield "layer" if index else "transformer", pixels, width, width


def _adapters(count: int, options: ComputeOptions) -> float:
    """Bytes per token that autograd keeps between the two matrices of `count` adapters."""
    return 0.0 if options.full else float(count * options.rank * options.element_size)


def autoencoder_widths(autoencoder: Config) -> list[int]:
    """The channels of an autoencoder's levels, the first at full resolution."""
    if "dim_mult" in autoencoder:  # Qwen-Image's, which is one of videos
        return [autoencoder["base_dim"] * factor for factor in autoencoder["dim_mult"]]
    deep = autoencoder.get("decoder_block_out_channels")  # SANA's
    return list(deep or autoencoder["block_out_channels"])


def latent_channels(autoencoder: Config) -> int:
    """The channels of an autoencoder's latents."""
    return int(autoencoder["z_dim" if "dim_mult" in autoencoder else "latent_channels"])


def tile_size(autoencoder: Config, pixels: int) -> int:
    """Pixels of a tile's edge with `memory.vae_tiling`, for images of so many pixels."""
    own = 256 if "dim_mult" in autoencoder else autoencoder.get("sample_size")
    return min(int(own or math.isqrt(pixels)), LARGEST_TILE)


def decoding_bytes(autoencoder: Config, pixels: int, images: int, frames: int = 1) -> float:
    """The most that decoding holds, in bytes: three float32 tensors at full resolution with the
    channels of the last level but one. An autoencoder of videos pads each with two frames, decodes
    four further frames at once, and keeps all that it has decoded; one of deep compression adds
    a shortcut to what it upsamples.
    """
    widths = autoencoder_widths(autoencoder)
    if "decoder_block_out_channels" in autoencoder:
        return (1.25 * widths[1] + 2 * widths[0]) * pixels * 4 * images
    tensors = 3.0
    if "dim_mult" in autoencoder:
        tensors = 9.0 if frames == 1 else 25.5
    kept = 3 * frames if frames > 1 else 0
    return (tensors * widths[min(1, len(widths) - 1)] + kept) * pixels * 4 * images
