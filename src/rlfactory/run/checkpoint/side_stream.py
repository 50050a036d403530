"""Copies from a GPU to pinned memory by a stream of their own, while the GPU computes."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class SideStream:
    """Copies to pinned memory. Neither the host nor the GPU's computation waits for them.

    What is copied must not change before `wait_on_device` was called.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._copied: torch.cuda.Event | None = None

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Inside the block, `copy` copies what the GPU has computed before."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield
        self._copied = self._stream.record_event()

    def copy(self, tensor: Tensor, reused: Tensor | None) -> Tensor:
        """A copy in pinned memory, that of `reused` where shape and dtype are equal."""
        if reused is None or (reused.shape, reused.dtype) != (tensor.shape, tensor.dtype):
            reused = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return reused.copy_(tensor, non_blocking=True)

    def wait_on_device(self) -> None:
        """What the GPU computes from now on begins after the copies; the host does not wait."""
        if self._copied is not None:
            torch.cuda.current_stream(self._device).wait_event(self._copied)

    def wait_on_host(self) -> None:
        """Return when the copies can be read."""
        if self._copied is not None:
            self._copied.synchronize()
