"""Random draws that depend on names and numbers, never on what was drawn before.

Each draw is keyed by `(seed, stream, *key)` and, within a batch, by the sample's index. A resumed
run continues bit for bit, and any process can draw the samples that are its own.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


def seed_of(seed: int, stream: str, *key: int) -> int:
    """A 63-bit seed, a hash of its arguments."""
    text = "/".join([str(seed), stream, *map(str, key)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


def generator(seed: int, stream: str, *key: int) -> torch.Generator:
    """A fresh CPU generator for one draw."""
    return torch.Generator().manual_seed(seed_of(seed, stream, *key))


def normal(
    seed: int, stream: str, key: Sequence[int], indices: Sequence[int], shape: Sequence[int]
) -> Tensor:
    """Standard normal `[len(indices), *shape]`; row i depends on `indices[i]`, not on its place."""
    return torch.stack(
        [torch.randn(*shape, generator=generator(seed, stream, *key, i)) for i in indices]
    )


def uniform(
    seed: int, stream: str, key: Sequence[int], indices: Sequence[int], shape: Sequence[int]
) -> Tensor:
    """Uniform on [0, 1), shaped and keyed like `normal`."""
    return torch.stack(
        [torch.rand(*shape, generator=generator(seed, stream, *key, i)) for i in indices]
    )
