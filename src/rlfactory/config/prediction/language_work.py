"""FLOPs, bytes and launches of passes of causal language models, from their shapes.

Bytes (for each token, by width) and launches were counted on fake tensors; tests count again.
"""

from collections.abc import Mapping

from rlfactory.config.memory.activations import ComputeOptions
from rlfactory.config.memory.language_shapes import Kind, LanguageShape, Rates
from rlfactory.config.prediction.work import Work, rate_of

Table = dict[str, Rates]
LLAMA_FORWARD: Table = {
    "hidden": (97.8, 117.4, 97.8, 119.3),
    "query": (76.0, 38.2, 56.0, 54.0),
    "key_value": (28.0, 14.2, 8.0, 6.0),
    "intermediate": (20.0, 10.0, 20.0, 10.0),
}
LLAMA_BACKWARD: Table = {
    "hidden": (268.6, 254.7, 276.6, 310.6),
    "query": (80.0, 40.2, 72.0, 70.0),
    "key_value": (40.0, 20.2, 32.0, 30.0),
    "intermediate": (36.0, 18.0, 36.0, 18.0),
}
FORWARD: Mapping[Kind, Table] = {
    "llama": LLAMA_FORWARD,
    "qwen3": {
        **LLAMA_FORWARD,
        "query": (104.4, 74.6, 84.4, 102.4),
        "key_value": (56.4, 50.6, 36.4, 54.4),
    },
    "gpt2": {"hidden": (101.3, 89.6, 41.3, 48.9), "intermediate": (72.0, 36.0, 72.0, 36.0)},
}
BACKWARD: Mapping[Kind, Table] = {
    "llama": LLAMA_BACKWARD,
    "qwen3": {
        **LLAMA_BACKWARD,
        "query": (160.6, 128.8, 168.6, 190.6),
        "key_value": (120.6, 108.8, 128.6, 150.6),
    },
    "gpt2": {"hidden": (108.0, 102.8, 92.1, 94.2), "intermediate": (112.0, 56.0, 116.0, 58.0)},
}
LAUNCHES: Mapping[Kind, tuple[Rates, Rates]] = {
    "llama": ((47, 59, 39, 53), (71, 83, 70, 90)),
    "qwen3": ((59, 75, 51, 69), (95, 111, 98, 120)),
    "gpt2": ((24, 35, 20, 30), (27, 34, 29, 41)),
}
"""Kernels of a layer, forward and backward."""
REST = 40
"""Kernels of a pass outside of the layers: embeddings, masks, the last norm."""
CAST_BYTES = 6.0
"""Bytes for each weight that autocast reads in float32 and writes in half precision."""
ATTENTION_BACKWARD = 2.5


def hidden_passes(
    shape: LanguageShape, rows: int, tokens: int, options: ComputeOptions
) -> tuple[Work, Work]:
    """The work of a forward and of a backward pass over `rows` sequences of `tokens` tokens, up to
    the hidden states.
    """
    n = float(rows * tokens)
    matmul = 2.0 * n * shape.layer_parameters
    attention = 4.0 * n * tokens * shape.query
    adapters = 0.0 if options.full else 2.0 * n * shape.adapters(options.rank, None) / shape.layers
    cast = CAST_BYTES * shape.layer_parameters if options.full and options.half else 0.0
    moved = (
        shape.weighted(FORWARD[shape.kind], options),
        shape.weighted(BACKWARD[shape.kind], options),
    )
    started = LAUNCHES[shape.kind]
    forward = Work(
        matmul + attention + adapters,
        n * moved[0] + cast,
        options.coefficient(*started[0]),
        rate=rate_of(options.half),
    )
    backward = Work(
        (2 if options.full else 1) * matmul + ATTENTION_BACKWARD * attention + 2 * adapters,
        n * moved[1] + cast,
        options.coefficient(*started[1]),
        rate=rate_of(options.half),
    )
    if options.checkpointing:
        backward = backward + forward
    both = forward * shape.layers, backward * shape.layers
    return both[0] + Work(launches=REST), both[1] + Work(launches=REST / 4)


def logits(shape: LanguageShape, tokens: int, *, arrays: float, learns: bool, half: bool) -> Work:
    """The work of the logits of `tokens` tokens, and of `arrays` passes over them in float32."""
    products = (3 if learns else 1) * 2.0 * tokens * shape.hidden * shape.vocabulary
    return Work(products, 4.0 * arrays * tokens * shape.vocabulary, 30, rate=rate_of(half))


def decoded_token(shape: LanguageShape, rows: int, context: float, element_size: int) -> Work:
    """The work of one token for each of `rows` sequences that are `context` tokens long.

    Every weight and the cache are read once; few rows leave nothing else to wait for.
    """
    half = element_size == 2
    options = ComputeOptions(half=half, full=True)
    weights = element_size * (shape.layers * shape.layer_parameters)
    weights += element_size * shape.vocabulary * shape.hidden
    cache = rows * context * shape.cached(element_size)
    moved = rows * shape.layers * shape.weighted(FORWARD[shape.kind], options)
    sampled = 4.0 * SAMPLED_ARRAYS * rows * shape.vocabulary
    launches = shape.layers * (options.coefficient(*LAUNCHES[shape.kind][0]) + CACHE_LAUNCHES)
    flops = 2.0 * rows * (shape.layers * shape.layer_parameters + shape.vocabulary * shape.hidden)
    flops += 4.0 * rows * context * shape.query * shape.layers
    return Work(flops, weights + cache + moved + sampled, launches + REST + 30, rate=rate_of(half))


CACHE_LAUNCHES = 4
"""Kernels that write and read a layer's cache."""
SAMPLED_ARRAYS = 8
"""Passes over the logits that drawing a token makes."""
