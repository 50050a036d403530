"""Square roots on the CPU that are rounded correctly, whatever kernels oneMKL takes."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor


@contextmanager
def exact_square_roots() -> Iterator[None]:
    """Within the `with`, `torch.sqrt` on the CPU is the nearest number, as IEEE 754 wants it.

    oneMKL's branch COMPATIBLE misses one of six by a bit: it improves the processor's approximation
    of 1/sqrt, which Intel's and AMD's give differently. AdamW takes roots in each step.
    """
    kernels: Any = torch.library  # torch declares no types for it
    library = kernels.Library("aten", "IMPL", "CPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced
        library.impl("sqrt", exact_sqrt)
        library.impl("sqrt_", lambda values: values.copy_(exact_sqrt(values)))
    try:
        yield
    finally:
        library._destroy()


def exact_sqrt(values: Tensor) -> Tensor:
    """The root of each value, of the dtype of `torch.sqrt`; without gradients."""
    if values.dtype not in (torch.float32, torch.float64):
        return torch.pow(values, 0.5)  # the replaced kernel
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.asarray(np.sqrt(values.detach().numpy())))
