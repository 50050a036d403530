"""The way back to where an iteration began to learn: a copy on the CPU of what moves."""

from typing import Any

import torch
from torch import Tensor

from rlfactory.model.base import ImageModel
from rlfactory.model.text import TextModel
from rlfactory.run.tensors import pack, unpack


class Snapshot:
    """Every weight set and the optimiser's state, as of the last `take`; `iteration` says when.

    Its memory is used again by the next one.
    """

    def __init__(self) -> None:
        self.iteration: int | None = None
        self._weights: dict[str, Tensor] = {}
        self._moments: dict[str, Tensor] = {}
        self._plain: Any = None

    def take(
        self, iteration: int, model: ImageModel | TextModel, optimizer: torch.optim.Optimizer
    ) -> None:
        """Copy what this iteration, counted from 0, begins with."""
        self.iteration = None  # half a copy is none
        _, self._weights = pack(model.weights.state_dict(), self._weights)
        self._plain, self._moments = pack(optimizer.state_dict(), self._moments)
        self.iteration = iteration

    def put_back(self, model: ImageModel | TextModel, optimizer: torch.optim.Optimizer) -> None:
        """Have both as they were."""
        model.weights.load_state_dict(self._weights)
        optimizer.load_state_dict(unpack(self._plain, self._moments))
