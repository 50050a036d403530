"""Keyed random draws: each depends on names and numbers, not on what was drawn before.

A draw is keyed by `(seed, stream, *key)` and, within a batch, by the sample's index. So a resumed
run continues bit for bit, and each rank can draw its own samples alone.
"""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

THREADS = 8
"""That draw noise for a GPU; one draws about 100 million numbers a second."""


def derive_seed(seed: int, stream: str, *key: int) -> int:
    """A 63-bit seed, the BLAKE2b hash of the arguments."""
    text = "/".join([str(seed), stream, *map(str, key)])
    # 63 bits: torch seeds are signed
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


def generator(seed: int, stream: str, *key: int) -> torch.Generator:
    """A new CPU generator for one draw; on the CPU so that every device gets the same numbers."""
    return torch.Generator().manual_seed(derive_seed(seed, stream, *key))


def normal(
    seed: int,
    stream: str,
    key: Sequence[int],
    indices: Sequence[int],
    shape: Sequence[int],
    *,
    pinned: bool = False,
) -> Tensor:
    """Standard normal numbers.

    Args:
        seed: The run's seed.
        stream: What the numbers are for.
        key: Further numbers of the key, such as the iteration.
        indices: A number for each row, such as the sample's index; row i depends on `indices[i]`.
        shape: Shape of a row.
        pinned: Whether the numbers are to be copied to a GPU: they are drawn into pinned memory, by
            several threads, as the CPU has little else to do. The numbers are the same.

    Returns:
        `[len(indices), *shape]` float32 on the CPU.
    """
    numbers = torch.empty(len(indices), *shape, pin_memory=pinned)

    def draw(row: int) -> None:
        numbers[row] = torch.randn(*shape, generator=generator(seed, stream, *key, indices[row]))

    if pinned:
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(draw, range(len(indices))))
    else:
        for row in range(len(indices)):
            draw(row)
    return numbers


def uniform(
    seed: int, stream: str, key: Sequence[int], indices: Sequence[int], shape: Sequence[int]
) -> Tensor:
    """Uniform numbers on [0, 1), with the arguments and the shape of `normal`."""
    return torch.stack(
        [torch.rand(*shape, generator=generator(seed, stream, *key, i)) for i in indices]
    )
