"""Many processes that learn as one by DeepSpeed's ZeRO."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from rlfactory.hardware.base import HardwareError
from rlfactory.hardware.distributed import Distributed
from rlfactory.hardware.pasted import PastedError, engine
from rlfactory.types import NonNegativeInt, Positive, PositiveInt

if TYPE_CHECKING:
    from rlfactory.hardware.zero import Zero

T = TypeVar("T")


class DeepSpeed(Distributed):
    """As `Distributed`, with what ZeRO divides: 1 the optimiser's moments, 2 the gradients as well,
    3 the parameters as well. `offload` keeps moments, and the weights that they move, on the CPU.

    Source: Rajbhandari et al. 2020, ZeRO; Ren et al. 2021, ZeRO-Offload.
    """

    package = "deepspeed"
    """What it imports."""
    extra = "deepspeed"
    """The extra of ours that brings it."""

    def __init__(
        self,
        loss_scaling: bool = False,
        *,
        zero: Literal[1, 2, 3] = 2,
        offload: Literal["none", "cpu"] = "none",
        config: str | None = None,
        processes: PositiveInt = 1,
        launcher: Literal["auto", "slurm"] = "auto",
        port: PositiveInt | None = None,
        timeout: Positive = 600.0,
        restarts: NonNegativeInt = 0,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        threads: PositiveInt | None = None,
        memory_gb: Positive | None = None,
    ) -> None:
        super().__init__(
            loss_scaling,
            processes=processes,
            launcher=launcher,
            port=port,
            timeout=timeout,
            restarts=restarts,
            device=device,
            threads=threads,
            memory_gb=memory_gb,
        )
        self._stage, self._offload, self._config = zero, offload, config
        self._zero: Zero | None = None

    def adopt(self, optimizer: torch.optim.Optimizer, model: Any) -> None:
        """Hand the model's parameters and their optimiser over to DeepSpeed."""
        from rlfactory.hardware.zero import Zero
        from rlfactory.hardware.zero3 import Zero3

        size = sum(parameter.numel() for parameter in model.weights.parameters.values())
        try:
            settings = engine(self._stage, self._offload, self._config, size)
        except PastedError as error:
            raise HardwareError(f"hardware.config: {error}") from error
        kind = Zero3 if self._stage == 3 else Zero
        self._zero = kind(model, optimizer, settings, self.device)

    @property
    def _adopted(self) -> "Zero":
        assert self._zero is not None, "no optimiser was adopted"
        return self._zero

    def backward(self, loss: Tensor) -> None:
        """Backward, in which processes sum gradients."""
        self._adopted.backward(loss)

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        max_grad_norm: float,
    ) -> float | None:
        """Clip by the global norm, update and clear."""
        del optimizer, parameters  # those that were adopted
        return self._adopted.step(max_grad_norm)

    def forget(self, optimizer: torch.optim.Optimizer) -> None:
        """Clear the gradients, also those that were summed already."""
        del optimizer
        self._adopted.forget()

    def evened(
        self, chunks: Iterator[T], spare: Callable[[], T | None]
    ) -> Iterator[tuple[T, bool]]:
        """Equally many in all processes, which wait for each other in each."""
        return self._alike(chunks, spare)
