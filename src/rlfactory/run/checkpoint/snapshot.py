"""A copy of the training state in the CPU's memory, to roll back to within an iteration."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from rlfactory.model.base import ImageModel
from rlfactory.model.text_base import TextModel
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.run.checkpoint.optimizer_state import (
    load_local_optimizer_state,
    local_optimizer_state,
)
from rlfactory.run.checkpoint.serialization import Copy, copy_to_cpu, flatten, unflatten

AUTO_LIMIT = 4 * 2**30
"""Bytes of a process's snapshot up to which `checkpoint.snapshot=auto` takes any."""
MOMENTS = 2
"""Tensors of a parameter's size that an optimizer such as AdamW has, before it has made them."""


class Snapshot:
    """A copy on the CPU of the weight sets that change, and of the optimizer state.

    From a GPU it is made by a stream of its own, into pinned memory; `before_moving` must be called
    before weights move. The memory of one copy is reused by the next.

    Args:
        copies: False in ranks that need none, because another one has equal weights and saves them:
            they only note the iteration.

    Attributes:
        iteration: that of the last `take`; None before, or where a copy was not completed.
    """

    def __init__(self, *, copies: bool = True) -> None:
        self.iteration: int | None = None
        self._copies = copies
        self._stream: SideStream | None = None
        self._weights: dict[str, Tensor] = {}
        self._moments: dict[str, Tensor] = {}
        self._plain: object = None

    def take(
        self, iteration: int, model: ImageModel | TextModel, optimizer: torch.optim.Optimizer
    ) -> None:
        """Copy the state before `iteration`, counted from 0."""
        self.iteration = None  # an interrupted copy must not be used
        if self._copies:
            if self._stream is None and model.device.type == "cuda":
                self._stream = SideStream(model.device)
            if self._stream is None:
                self._copy(model, optimizer, copy_to_cpu)
            else:
                with self._stream.copying():
                    self._copy(model, optimizer, self._stream.copy)
                if model.weights.swaps_in_place:  # which happens before the optimizer's step
                    self._stream.wait_on_device()
        self.iteration = iteration

    def before_moving(self) -> None:
        """Let what the GPU computes from now on wait for the copy; the host does not."""
        if self._stream is not None:
            self._stream.wait_on_device()

    def put_back(self, model: ImageModel | TextModel, optimizer: torch.optim.Optimizer) -> None:
        """Restore model and optimizer from the copy; nothing in a rank that has none."""
        if not self._copies:
            return
        if self._stream is not None:
            self._stream.wait_on_host()
        model.weights.load_state_dict(self._weights)
        state = unflatten(self._plain, self._moments)
        load_local_optimizer_state(state, model, optimizer)

    def _copy(
        self, model: ImageModel | TextModel, optimizer: torch.optim.Optimizer, copy: Copy
    ) -> None:
        _, self._weights = flatten(changing_weights(model), self._weights, copy)
        state = local_optimizer_state(model, optimizer)
        self._plain, self._moments = flatten(state, self._moments, copy)


def changing_weights(model: ImageModel | TextModel) -> dict[str, Tensor]:
    """The tensors of a model's weight sets without the reference, which never moves."""
    state = model.weights.state_dict()
    return {key: tensor for key, tensor in state.items() if not key.startswith(f"{REFERENCE}/")}


def snapshot_bytes(model: ImageModel | TextModel) -> int:
    """The size of this process's snapshot, with the moments that an optimizer will have."""
    weights = sum(tensor.nbytes for tensor in changing_weights(model).values())
    policy = sum(p.nbytes for p in model.weights.own_parameters())
    return weights + MOMENTS * policy


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
