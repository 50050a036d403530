"""torch's own defaults in the process of a Python caller, who may have set others."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

CPU = torch.device("cpu")


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Compute as in a process of one's own within the block: with gradients, in float32 by default,
    with new tensors on the CPU and no autocast.

    Each of these a caller may have changed, for all that follows or by a block around the call:
    autocast alone would train to other weights than the command does, without a word.
    """
    with kept_defaults(), ExitStack() as stack:
        torch.set_default_dtype(torch.float32)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device() != CPU:  # such a block slows each call of torch
            stack.enter_context(CPU)
        yield


@contextmanager
def kept_defaults() -> Iterator[None]:
    """Undo what a user's code within the block sets for all that follows: torch's default dtype,
    which all threads share, its default device, and whether there are gradients.
    """
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            if torch.get_default_device() != device:
                torch.set_default_device(None if device == CPU else device)
