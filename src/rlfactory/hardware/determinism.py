"""Deterministic algorithms on CUDA: the same bits in each run (`hardware.deterministic`).

Without it sums are made by atomic additions or in an order that differs from run to run. Sources:
https://docs.pytorch.org/docs/stable/notes/randomness.html, and cuBLAS on its workspaces.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.backends import cuda, cudnn
from torch.utils import deterministic

from rlfactory.hardware.base import HardwareError

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""Values of that variable with which cuBLAS is deterministic; the first is faster."""


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Within the `with`, operations have deterministic algorithms, or raise a RuntimeError.

    Enter it before anything is computed on a GPU: cuBLAS reads its variable when it starts.
    Attention is left to torch's flash, memory-efficient and plain kernels, whose backward passes
    are deterministic in this mode; cuDNN's is not, and is disabled.

    Raises:
        HardwareError: CUBLAS_WORKSPACE_CONFIG is set to a value that is not deterministic.
    """
    given = os.environ.get(WORKSPACE)
    if given not in (None, *WORKSPACES):
        raise HardwareError(
            f"hardware.deterministic=true, but {WORKSPACE} is {given}; unset it, or type"
            f" {WORKSPACE}={WORKSPACES[0]}"
        )
    options: Any = deterministic  # torch declares no types for it
    was_enabled = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = options.fill_uninitialized_memory
    attention = cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    was_deterministic, benchmarked = cudnn.deterministic, cudnn.benchmark
    os.environ.setdefault(WORKSPACE, WORKSPACES[0])
    torch.use_deterministic_algorithms(True)
    # a help to find reads of memory that nobody wrote, which costs a pass over each new tensor
    options.fill_uninitialized_memory = False
    cudnn.deterministic, cudnn.benchmark = True, False
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_enabled, warn_only=only_warned)
        options.fill_uninitialized_memory = fills
        cudnn.deterministic, cudnn.benchmark = was_deterministic, benchmarked
        cuda.enable_cudnn_sdp(attention)
        if given is None:
            os.environ.pop(WORKSPACE, None)
