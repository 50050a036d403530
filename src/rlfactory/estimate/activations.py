"""What a network holds beside its weights while it predicts and learns, by family.

The coefficients are bytes for each token (or latent pixel) and channel of width, of a block. They
were counted on ghosts of the networks at their full width (scripts/bench/ghost.py), in which every
storage that autograd keeps is seen; tests hold the formulas against that count again.
docs/estimate.md says what they consist of.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Family = Literal["flux", "sd3", "unet"]
Config = Mapping[str, Any]


class UnknownNetwork(ValueError):
    """A network of none of the families whose memory is known."""


@dataclass(frozen=True)
class Manner:
    """How is learned: `half` precision by autocast or float32, all weights or adapters (`full`,
    `rank`), and whether blocks are computed a second time in place of being kept (`again`).
    """

    half: bool = False
    full: bool = False
    rank: int = 32
    again: bool = False

    @property
    def size(self) -> int:
        """Bytes of a number that the network computes with."""
        return 2 if self.half else 4

    def among(self, lora: float, lora_half: float, full: float, full_half: float) -> float:
        """The coefficient that is meant."""
        if self.full:
            return full_half if self.half else full
        return lora_half if self.half else lora


@dataclass(frozen=True)
class Taken:
    """Bytes of one item: what a forward pass with a gradient has `saved`, what comes and goes on
    top of it in the backward one (`working`), and at most in a forward pass without (`sampling`).
    """

    saved: float
    working: float
    sampling: float


def family_of(network: Config) -> Family:
    """Which of the three; UnknownNetwork where it is none."""
    if "num_single_layers" in network:
        return "flux"
    if "caption_projection_dim" in network:
        return "sd3"
    if "down_block_types" in network and "cross_attention_dim" in network:
        return "unet"
    raise UnknownNetwork("no network of a family that is known")


def taken(network: Config, edge: int, text: int, manner: Manner) -> Taken:
    """For one item of `edge` x `edge` latents and `text` tokens."""
    of = {"flux": _flux, "sd3": _sd3, "unet": _unet}
    return of[family_of(network)](network, edge, text, manner)


def _flux(network: Config, edge: int, text: int, manner: Manner) -> Taken:
    """Double blocks, then single ones, all of them on the tokens of picture and text together."""
    tokens = (edge // 2) ** 2 + text
    width = network["num_attention_heads"] * network["attention_head_dim"]
    double, single = network["num_layers"], network["num_single_layers"]
    each = tokens * (width * manner.among(52.3, 40.9, 96.2, 68.1) + _adapters(4, manner))
    lone = tokens * (width * manner.among(48.2, 34.2, 84.1, 60.1) + _adapters(3, manner))
    row = tokens * width
    working = row * manner.among(44.0, 27.5, 44.0, 27.5)
    sampling = row * manner.among(60.3, 37.3, 60.3, 37.3)
    if manner.again:
        inputs = (double + single + 1) * row * manner.size
        return Taken(inputs, max(each, lone) + working, sampling)
    return Taken(double * each + single * lone, working, sampling)


def _sd3(network: Config, edge: int, text: int, manner: Manner) -> Taken:
    """Joint blocks; some have a second attention on the picture alone, the last drops the text."""
    image = (edge // network["patch_size"]) ** 2
    tokens, layers = image + text, network["num_layers"]
    width = network["num_attention_heads"] * network["attention_head_dim"]
    seconds = len(network.get("dual_attention_layers") or ())
    row = width * manner.among(56.6, 45.1, 100.3, 74.2) + _adapters(4, manner)
    second = image * width * manner.among(24.2, 20.2, 40.2, 38.2)
    working = tokens * width * manner.among(24.0, 15.7, 24.0, 15.7)
    sampling = tokens * width * manner.among(45.2, 28.1, 45.2, 28.1)
    if manner.again:
        inputs = (layers + 1) * tokens * width * manner.size
        return Taken(inputs, tokens * row + (second if seconds else 0) + working, sampling)
    joint = ((layers - 1) * tokens + image + 0.6 * text) * row
    return Taken(joint + seconds * second, working, sampling)


def _unet(network: Config, edge: int, text: int, manner: Manner) -> Taken:
    """Residual blocks of convolutions, transformers on the higher levels, and what joins levels."""
    residuals = transformers = inputs = joints = 0.0
    largest = 0.0
    for kind, pixels, first, second in unet_blocks(network, edge):
        if kind == "residual":
            residuals += pixels * (first + second)
            inputs += pixels * first
        elif kind == "transformer":
            transformers += pixels * first
            largest = max(largest, pixels * first)
        else:
            joints += pixels * first
    block = manner.among(105.0, 72.0, 126.0, 75.0)
    working = largest * manner.among(40.0, 18.1, 40.0, 18.1)
    sampling = largest * manner.among(104.0, 55.2, 104.0, 55.2)
    joined = joints * manner.size
    if manner.again:
        # a transformer's norm and its two projections stand outside of what is computed again
        kept = inputs * manner.size + transformers * manner.among(16, 10, 16, 10) + joined
        return Taken(kept, largest * block + working, sampling)
    kept = residuals * manner.among(12, 10, 12, 10) + transformers * block + joined
    return Taken(kept, working, sampling)


def unet_blocks(network: Config, edge: int) -> Iterator[tuple[str, int, int, int]]:
    """Kind, pixels, channels in and out of each block of a UNet, from the first to the last."""
    widths, each = list(network["block_out_channels"]), network["layers_per_block"]
    pixels, now = edge**2, widths[0]
    skipped = [now]
    for level, (kind, width) in enumerate(zip(network["down_block_types"], widths, strict=True)):
        for _ in range(each):
            yield "residual", pixels, now, width
            if "Attn" in kind:
                yield "transformer", pixels, width, width
            now = width
            skipped.append(now)
        if level < len(widths) - 1:
            yield "joint", pixels, now, now
            pixels //= 4
            skipped.append(now)
    yield "residual", pixels, now, now
    yield "transformer", pixels, now, now
    yield "residual", pixels, now, now
    for level, (kind, width) in enumerate(
        zip(network["up_block_types"], widths[::-1], strict=True)
    ):
        for _ in range(each + 1):
            yield "residual", pixels, now + skipped.pop(), width
            if "Attn" in kind:
                yield "transformer", pixels, width, width
            now = width
        if level < len(widths) - 1:
            pixels *= 4
            yield "joint", pixels, now, now


def _adapters(count: int, manner: Manner) -> float:
    """Bytes a token that adapters keep between their two matrices."""
    return 0.0 if manner.full else float(count * manner.rank * manner.size)


def decoded(autoencoder: Config, size: int, pictures: int) -> float:
    """The most that decoding takes, in bytes: three tensors of the last level but one's channels,
    at full resolution and in float32.
    """
    widths = autoencoder["block_out_channels"]
    return float(3 * widths[min(1, len(widths) - 1)] * size**2 * 4 * pictures)
