"""A copy of the training state in the CPU's memory, to roll back to within an iteration."""

from functools import partial

import torch
from torch import Tensor

from rlfactory.model.base import Model
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.run.checkpoint.optimizer_state import (
    load_local_optimizer_state,
    local_optimizer_state,
)
from rlfactory.run.checkpoint.serialization import copy_to_cpu, flatten, unflatten

AUTO_LIMIT = 4 * 2**30
"""Bytes of a process's snapshot up to which `checkpoint.snapshot=auto` takes any."""
MOMENTS = 2
"""Tensors of a parameter's size that an optimizer such as AdamW has, before it has made them."""


class Snapshot:
    """A copy on the CPU of the weight sets that change, and of the optimizer state.

    From a GPU it goes to pinned memory: the GPU copies before it computes what follows, for which
    the host does not wait. The memory of one copy is reused by the next. Ranks that need none,
    because another one has equal weights and saves them, only note the iteration: no `copies`.

    Attributes:
        iteration: that of the last `take`; None before, or where a copy was not completed.
    """

    def __init__(self, *, copies: bool = True) -> None:
        self.iteration: int | None = None
        self._copies = copies
        self._weights: dict[str, Tensor] = {}
        self._moments: dict[str, Tensor] = {}
        self._plain: object = None

    def take(self, iteration: int, model: Model, optimizer: torch.optim.Optimizer) -> None:
        """Copy the state before `iteration`, counted from 0."""
        self.iteration = None  # an interrupted copy must not be used
        if self._copies:
            copy = partial(copy_to_cpu, waits=False)
            _, self._weights = flatten(changing_weights(model), self._weights, copy)
            state = local_optimizer_state(model, optimizer)
            self._plain, self._moments = flatten(state, self._moments, copy)
        self.iteration = iteration

    def put_back(self, model: Model, optimizer: torch.optim.Optimizer) -> None:
        """Restore model and optimizer from the copy; nothing in a rank that has none."""
        if not self._copies:
            return
        if model.device.type == "cuda":  # until the copies can be read
            torch.cuda.current_stream(model.device).synchronize()
        model.weights.load_state_dict(self._weights)
        state = unflatten(self._plain, self._moments)
        load_local_optimizer_state(state, model, optimizer)


def changing_weights(model: Model) -> dict[str, Tensor]:
    """The tensors of a model's weight sets without the reference, which never moves."""
    state = model.weights.state_dict()
    return {key: tensor for key, tensor in state.items() if not key.startswith(f"{REFERENCE}/")}


def snapshot_bytes(model: Model) -> int:
    """The size of this process's snapshot, with the moments that an optimizer will have."""
    weights = sum(tensor.nbytes for tensor in changing_weights(model).values())
    policy = sum(p.nbytes for p in model.weights.own_parameters())
    return weights + MOMENTS * policy
