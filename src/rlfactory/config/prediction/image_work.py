"""FLOPs, bytes and launches of passes of image networks, from their configurations.

FLOPs are those that torch's FlopCounterMode counts. Bytes (for each token and channel of a block)
and launches were counted on fake tensors at full width (scripts/bench/work.py); tests count again.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rlfactory.config.memory.activations import (
    ComputeOptions,
    family_of,
    unet_blocks,
    whole_groups,
)
from rlfactory.config.prediction.work import Work, rate_of, total

Config = Mapping[str, Any]
Four = tuple[float, float, float, float]
"""A number for adapters in float32 and half precision, and for all weights in both."""

BYTES: Mapping[str, tuple[Four, Four]] = {
    "double": ((369.0, 395.7, 289.0, 321.0), (489.0, 521.8, 549.9, 535.0)),
    "single": ((320.8, 338.6, 260.8, 289.0), (448.9, 476.7, 489.2, 485.0)),
    "qwen_image": ((304.8, 274.2, 224.8, 252.0), (455.8, 486.3, 518.2, 503.0)),
    "z_image": ((374.2, 340.2, 294.2, 337.3), (765.5, 896.6, 845.8, 867.5)),
    "sana": ((464.9, 379.9, 344.9, 369.0), (796.0, 750.0, 795.0, 827.0)),
    "wan": ((451.5, 497.8, 324.4, 421.4), (771.7, 912.5, 829.2, 867.9)),
    "flux2 double": ((396.9, 362.3, 316.9, 327.0), (692.9, 660.8, 717.8, 624.0)),
    "flux2 single": ((452.7, 413.6, 272.7, 316.6), (712.8, 666.2, 697.0, 589.0)),
    "joint": ((305.1, 283.7, 225.1, 230.0), (425.2, 426.0, 486.2, 470.0)),
    "dual": ((92.9, 112.8, 92.9, 112.8), (213.1, 239.1, 297.4, 297.4)),
    "residual": ((30.4, 35.2, 30.4, 36.0), (20.8, 24.8, 38.5, 44.0)),
    "transformer": ((308.9, 222.0, 184.1, 200.0), (546.0, 467.9, 412.2, 330.0)),
    "layer": ((290.0, 200.0, 165.0, 165.0), (455.0, 350.0, 370.0, 270.0)),
}
"""Read and written by one block for each token and channel, forward and backward."""
LAUNCHES: Mapping[str, tuple[Four, Four]] = {
    "double": ((114, 166, 82, 136), (144, 196, 160, 222)),
    "single": ((51, 75, 39, 66), (69, 93, 76, 105)),
    "qwen_image": ((113, 153, 81, 130), (148, 228, 168, 229)),
    "z_image": ((75, 100, 59, 82), (120, 198, 130, 161)),
    "sana": ((98, 133, 66, 106), (137, 211, 130, 177)),
    "wan": ((100, 148, 68, 112), (147, 221, 148, 193)),
    "flux2 double": ((112, 149, 80, 111), (154, 229, 150, 191)),
    "flux2 single": ((38, 52, 34, 45), (55, 85, 62, 75)),
    "joint": ((107, 151, 75, 120), (136, 186, 152, 213)),
    "dual": ((22, 29, 22, 39), (34, 43, 51, 72)),
    "residual": ((12, 20, 12, 23), (6, 8, 15, 26)),
    "transformer": ((59, 105, 27, 57), (82, 118, 45, 73)),
    "layer": ((54, 90, 23, 50), (68, 108, 40, 62)),
    "rest": ((85, 95, 85, 115), (15, 20, 40, 70)),
}
ATTENTION_BACKWARD = 2.5
"""FLOPs of attention's backward pass for each of its forward pass: it computes the scores again."""
CAST_BYTES = 6.0
"""Bytes for each weight that autocast reads in float32 and writes in half precision."""


def network_passes(
    network: Config, area: int, text: int, rows: int, options: ComputeOptions, parameters: float
) -> tuple[Work, Work]:
    """The work of a forward and of a backward pass of `rows` items of `area` latents."""
    formulas = {
        **{"flux": _flux, "flux2": _flux2, "sd3": _sd3},
        **{"qwen_image": _flux, "z_image": _z_image, "sana": _sana, "wan": _wan, "unet": _unet},
    }
    blocks = formulas[family_of(network)]
    pairs = [*blocks(network, area, text, rows, options)]
    cast = CAST_BYTES * parameters if options.full and options.half else 0.0
    both = [total(pair[i] for pair in pairs) + Work(bytes=cast) for i in (0, 1)]
    return both[0], both[1] + both[0] if options.checkpointing else both[1]


def _flops(
    options: ComputeOptions, *, matmul: float, attention: float, once: float
) -> tuple[float, float]:
    """FLOPs of a block's forward and backward pass.

    Args:
        matmul: of matrix products whose inputs have a gradient.
        attention: of scores and weighted sums.
        once: of products of the time embedding, which needs no gradient without trained weights.
    """
    forward = matmul + attention + once
    backward = ATTENTION_BACKWARD * attention + (2 * (matmul + once) if options.full else matmul)
    return forward, backward


def _pair(
    kind: str,
    options: ComputeOptions,
    elements: float,
    *,
    matmul: float = 0.0,
    attention: float = 0.0,
    once: float = 0.0,
    adapters: float = 0.0,
) -> tuple[Work, Work]:
    """Both passes of a block with `elements` tokens times channels; see `_flops`."""
    forward, backward = _flops(options, matmul=matmul, attention=attention, once=once)
    extra = 0.0 if options.full else adapters
    moved, started = BYTES.get(kind, ((0.0,) * 4, (0.0,) * 4)), LAUNCHES[kind]
    flops = (forward + extra, backward + 2 * extra)
    works = [
        Work(
            flops[i],
            elements * options.coefficient(*moved[i]),
            options.coefficient(*started[i]),
            rate=rate_of(options.half),
        )
        for i in (0, 1)
    ]
    return works[0], works[1]


def _width(network: Config) -> int:
    return int(network["num_attention_heads"] * network["attention_head_dim"])


def _flux(
    network: Config, area: int, text: int, rows: int, options: ComputeOptions
) -> Iterator[tuple[Work, Work]]:
    width, image = _width(network), area // 4
    tokens = image + text
    square, n = float(width**2), float(rows * tokens)
    attention = 4.0 * n * tokens * width
    double = "qwen_image" if family_of(network) == "qwen_image" else "double"
    for kind, count, modulation, adapted in (
        (double, network["num_layers"], 24, 16),
        ("single", network.get("num_single_layers", 0), 6, 12),
    ):
        one = _pair(
            kind,
            options,
            n * width,
            matmul=24 * square * n,
            attention=attention,
            once=modulation * square * rows,
            adapters=adapted * options.rank * width * n,
        )
        yield one[0] * count, one[1] * count
    channels, joint = network["in_channels"], network["joint_attention_dim"]
    yield _rest(rows, options, width, image, text, channels, channels, joint, network)


def _flux2(
    network: Config, area: int, text: int, rows: int, options: ComputeOptions
) -> Iterator[tuple[Work, Work]]:
    width, image = _width(network), area // 4
    n, square = float(rows * (image + text)), float(width**2)
    for kind, count, adapted in (
        ("flux2 double", network["num_layers"], 16),
        ("flux2 single", network["num_single_layers"], 20),
    ):
        one = _pair(
            kind,
            options,
            n * width,
            matmul=26 * square * n,
            attention=4.0 * n * (image + text) * width,
            adapters=adapted * options.rank * width * n,
        )
        yield one[0] * count, one[1] * count
    channels, joint = network["in_channels"], network["joint_attention_dim"]
    yield _rest(rows, options, width, image, text, channels, channels, joint, network)


def _sd3(
    network: Config, area: int, text: int, rows: int, options: ComputeOptions
) -> Iterator[tuple[Work, Work]]:
    width, image = _width(network), area // network["patch_size"] ** 2
    tokens = image + text
    square, layers = float(width**2), network["num_layers"]
    seconds = len(network.get("dual_attention_layers") or ())
    for count, written in ((layers - 1, text), (1, 0)):
        # the last block computes queries, keys and values of the text alone
        matmul = rows * square * (24 * image + (24 * text if written else 6 * text))
        one = _pair(
            "joint",
            options,
            float(rows * tokens * width) * (1.0 if written else 0.7),
            matmul=matmul,
            attention=4.0 * rows * tokens**2 * width,
            once=(24 if written else 16) * square * rows,
            adapters=16.0 * options.rank * width * rows * tokens,
        )
        yield one[0] * count, one[1] * count
    second = _pair(
        "dual",
        options,
        float(rows * image * width),
        matmul=8 * square * rows * image,
        attention=4.0 * rows * image**2 * width,
        once=6 * square * rows,
    )
    yield second[0] * seconds, second[1] * seconds
    patch = network["patch_size"] ** 2
    inputs, outputs = network["in_channels"] * patch, network["out_channels"] * patch
    joint = network["joint_attention_dim"]
    yield _rest(rows, options, width, image, text, inputs, outputs, joint, network)


def _z_image(
    network: Config, area: int, text: int, rows: int, options: ComputeOptions
) -> Iterator[tuple[Work, Work]]:
    width, refiners = network["dim"], network["n_refiner_layers"]
    square = float(width**2)
    image, text = whole_groups(area // 4), whole_groups(text)
    blocks = ((image + text, network["n_layers"]), (image, refiners), (text, refiners))
    for tokens, count in blocks:
        n = float(rows * tokens)
        one = _pair(
            "z_image",
            options,
            n * width,
            matmul=24 * square * n,
            attention=4.0 * n * tokens * width,
            once=2.0 * rows * 256 * 4 * width,
            adapters=16 * options.rank * width * n,
        )
        yield one[0] * count, one[1] * count
    patch = 4 * network["in_channels"]
    yield _rest(rows, options, width, image, text, patch, patch, network["cap_feat_dim"], network)


def _sana(
    network: Config, area: int, text: int, rows: int, options: ComputeOptions
) -> Iterator[tuple[Work, Work]]:
    width, hidden = _width(network), network["mlp_ratio"] * _width(network)
    image = area // network["patch_size"] ** 2
    n, square = float(rows * image), float(width**2)
    linear = 4.0 * (network["attention_head_dim"] + 1) * width
    one = _pair(
        "sana",
        options,
        width * (n + 0.16 * rows * text),
        matmul=n * (12 * square + 6 * width * hidden + 36 * hidden + linear),
        attention=4.0 * n * text * width,
        once=4 * square * rows * text,
        adapters=4.0 * options.rank * width * (6 * n + 2 * rows * text),
    )
    yield one[0] * network["num_layers"], one[1] * network["num_layers"]
    patch, joint = network["patch_size"] ** 2, network["caption_channels"] + width
    inputs, outputs = network["in_channels"] * patch, network["out_channels"] * patch
    yield _rest(rows, options, width, image, text, inputs, outputs, joint, network)


def _wan(
    network: Config, area: int, text: int, rows: int, options: ComputeOptions
) -> Iterator[tuple[Work, Work]]:
    width, hidden, patch = _width(network), network["ffn_dim"], math.prod(network["patch_size"])
    image, square = area // patch, float(_width(network) ** 2)
    n, words = float(rows * image), float(rows * text)
    one = _pair(
        "wan",
        options,
        n * width,
        matmul=n * (12 * square + 4 * width * hidden),
        attention=4.0 * n * (image + text) * width,
        once=4 * square * words,  # keys and values of the text
        adapters=4.0 * options.rank * width * (6 * n + 2 * words),
    )
    yield one[0] * network["num_layers"], one[1] * network["num_layers"]
    inputs, outputs = patch * network["in_channels"], patch * network["out_channels"]
    joint = network["text_dim"] + width
    yield _rest(rows, options, width, image, text, inputs, outputs, joint, network)


def _rest(
    rows: int,
    options: ComputeOptions,
    width: int,
    image: int,
    text: int,
    inputs: int,
    outputs: int,
    joint: int,
    network: Config,
) -> tuple[Work, Work]:
    """Embeddings of image, text and time, and the projection to the output."""
    times = 2 if network.get("guidance_embeds") else 1
    embedded = image * inputs + text * joint + times * (256 + width)
    embedded += network.get("pooled_projection_dim", 0) + width + 2 * width
    projected = 2.0 * rows * width * image * outputs
    return _pair(
        "rest", options, 0.0, matmul=projected, attention=0.0, once=2.0 * rows * width * embedded
    )


def _unet(
    network: Config, area: int, text: int, rows: int, options: ComputeOptions
) -> Iterator[tuple[Work, Work]]:
    context, first = network["cross_attention_dim"], network["block_out_channels"][0]
    for kind, pixels, inner, outer in unet_blocks(network, area):
        n = float(rows * pixels)
        if kind == "residual":
            matmul = 18.0 * n * (inner * outer + outer**2) + 2.0 * n * inner * outer * (
                inner != outer
            )
            once = 8.0 * rows * first * outer
            yield _pair("residual", options, n * (inner + outer), matmul=matmul, once=once)
        elif kind in ("transformer", "layer"):
            keys = 4.0 * rows * text * context * inner
            adapters = 24.0 * options.rank * inner * n
            yield _pair(
                kind,
                options,
                n * inner,
                # a transformer has two projections around its layers
                matmul=(40.0 if kind == "transformer" else 36.0) * n * inner**2,
                attention=4.0 * n * inner * (pixels + text),
                once=keys,
                adapters=adapters + 4.0 * options.rank * (context + inner) * rows * text,
            )
        else:
            written = n / 4 if kind == "downsample" else n
            conv = 18.0 * written * inner**2
            forward = Work(conv, 16.0 * written * inner, 3, rate=rate_of(options.half))
            yield forward, forward * (2 if options.full else 1)
    ends = 18.0 * rows * area * first * (network["in_channels"] + network["out_channels"])
    rest = _pair("rest", options, 0.0, matmul=ends)
    yield rest[0] * 0.25 + Work(0.75 * rest[0].flops), rest[1]
