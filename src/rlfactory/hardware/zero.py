"""ZeRO by DeepSpeed: an optimiser whose moments are divided among processes, stages 1 and 2.

Whoever learns sees what one process would: an optimiser of the model's own parameters, whose state
holds, of each, this process's part. It is a window on the flat tensors that DeepSpeed's steps move.
"""

import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlfactory.hardware.base import HardwareError


@dataclass(frozen=True)
class Piece:
    """Of a parameter `count` numbers from `first`, which lie in `flat` from `begin`."""

    flat: Tensor
    begin: int
    first: int
    count: int


class Through(nn.Module):
    """What DeepSpeed takes for the model: losses pass through it, and it holds what is trained."""

    def __init__(self, held: nn.Module) -> None:
        super().__init__()
        self.held = held

    def forward(self, loss: Tensor) -> Tensor:
        """The loss itself."""
        return loss


class Zero:
    """Steps of an optimiser that DeepSpeed divides; parameters are whole in each process.

    DeepSpeed averages gradients, and each process's loss is its share of the whole one: so losses
    are multiplied by the number of processes. Its step finds by itself that a norm is not finite,
    and then moves nothing.
    """

    def __init__(
        self,
        model: Any,
        optimizer: torch.optim.Optimizer,
        settings: Mapping[str, Any],
        device: torch.device,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._names = {id(p): name for name, p in model.weights.parameters.items()}
        self._parameters: dict[str, nn.Parameter] = dict(model.weights.parameters)
        kind: Any = type(optimizer)
        self._inner: torch.optim.Optimizer = kind(_groups(optimizer))
        self._engine = _engine(Through(self._held()), self._inner, settings, device)
        self._zero = self._engine.optimizer
        self._pieces = self._cut()
        self._windows: dict[int, dict[str, Any]] = {}
        self._divide()

    def _held(self) -> nn.Module:
        return nn.ParameterList(self._parameters.values())

    def _divide(self) -> None:
        self._model.weights.divide({}, self)

    def _cut(self) -> dict[str, Piece]:
        """Each parameter's piece, by name; one of which nothing is here has 0 numbers."""
        found = {}
        for number, group in enumerate(self._optimizer.param_groups):
            flat = self._zero.single_partition_of_fp32_groups[number]
            for parameter in group["params"]:
                mapping, piece = parameter._hp_mapping, Piece(flat, 0, 0, 0)
                if mapping is not None:
                    there, here = mapping.hp_fragment_address, mapping.lp_fragment_address
                    piece = Piece(flat, there.start, here.start, here.numel)
                found[self._names[id(parameter)]] = piece
        return found

    def backward(self, loss: Tensor) -> None:
        """Add a loss's gradients to those of the update under way."""
        passed = self._engine(loss * dist.get_world_size())
        self._engine.backward(passed, scale_wrt_gas=False)

    def step(self, limit: float) -> float:
        """Clip by the global norm and update, unless that is not finite."""
        self._take_up()
        self._zero.refresh_fp32_params()  # weights may have been put back since
        self._zero.clip_grad = limit
        self._engine.step()
        self._show()
        return float("inf") if self._zero.overflow else float(self._engine.get_global_grad_norm())

    def forget(self) -> None:
        """Clear the gradients of the update under way: a step that can't be made does that."""
        least = min(self._parameters.values(), key=lambda parameter: parameter.numel())
        self.backward(self._spoilt(least))
        self._engine.step()

    def _spoilt(self, parameter: nn.Parameter) -> Tensor:
        return (parameter * float("inf")).sum()

    def _take_up(self) -> None:
        """Go on with the options that the optimiser has, and with its state where that is new."""
        for ours, theirs in zip(
            self._optimizer.param_groups, self._inner.param_groups, strict=True
        ):
            theirs |= {key: value for key, value in ours.items() if key != "params"}
        state = self._optimizer.state
        known = [state.get(p) is self._windows.get(id(p)) for p in self._moved()]
        if all(known):
            return
        self._inner.state.clear()
        for parameter in self._moved():
            piece = self._pieces[self._names[id(parameter)]]
            for key, value in state.get(parameter, {}).items():
                _put(self._inner.state[piece.flat], key, value, piece)

    def _show(self) -> None:
        """Have the optimiser's state be windows on the one that was moved."""
        self._windows = {}
        self._optimizer.state = defaultdict(dict)
        for parameter in self._moved():
            piece = self._pieces[self._names[id(parameter)]]
            if moments := self._inner.state.get(piece.flat):
                seen = {key: _window(value, piece) for key, value in moments.items()}
                self._optimizer.state[parameter] = self._windows[id(parameter)] = seen

    def _moved(self) -> Iterator[nn.Parameter]:
        return (p for group in self._optimizer.param_groups for p in group["params"])

    @property
    def processes(self) -> int:
        """Among how many the moments are divided."""
        return dist.get_world_size()

    @property
    def holders(self) -> int:
        """Each process has all parameters."""
        return 1

    def gathered(self, anew: bool = False) -> AbstractContextManager[None]:
        """It is whole."""
        del anew
        return nullcontext()

    def regather(self) -> None:
        """It is whole."""

    def whole(self, name: str, part: Tensor) -> Tensor:
        """A tensor of a parameter's form, on the CPU."""
        del name
        return part.detach().to("cpu", copy=True)

    def part(self, name: str, whole: Tensor) -> Tensor:
        """All of it."""
        del name
        return whole

    def whole_moment(self, name: str, part: Tensor) -> Tensor:
        """What the optimiser has of a parameter, on the CPU, from all processes' parts."""
        if part.dim() == 0:
            return part.detach().to("cpu", copy=True)
        piece, shape = self._pieces[name], self._shape(name)
        room = part.new_zeros(shape.numel())
        room[piece.first : piece.first + piece.count] = part
        dist.all_reduce(room)
        return room.view(shape).to("cpu", copy=True)

    def part_moment(self, name: str, whole: Tensor) -> Tensor:
        """This process's part of it."""
        if whole.dim() == 0:
            return whole
        if whole.shape != self._shape(name):
            raise HardwareError(
                f"the optimiser's state of {name} is {list(whole.shape)}, not of the parameter's"
                " form, so ZeRO can't divide it; go on by hardware=ddp"
            )
        piece = self._pieces[name]
        return whole.flatten()[piece.first : piece.first + piece.count]

    def _shape(self, name: str) -> torch.Size:
        return self._parameters[name].shape

    @contextmanager
    def standing_in(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """Within this the parameters are these, for what saves the network."""
        kept = {name: parameter.data for name, parameter in self._parameters.items()}
        for name, parameter in self._parameters.items():
            parameter.data = values[name].to(parameter.device)
        try:
            yield
        finally:
            for name, parameter in self._parameters.items():
                parameter.data = kept[name]


def _groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [{**group, "params": list(group["params"])} for group in optimizer.param_groups]


def _window(value: Any, piece: Piece) -> Any:
    is_flat = isinstance(value, Tensor) and value.shape == piece.flat.shape
    return value[piece.begin : piece.begin + piece.count] if is_flat else value


def _put(moments: dict[str, Any], key: str, value: Any, piece: Piece) -> None:
    """A parameter's part of a flat tensor; what has no parts is everyone's."""
    if not isinstance(value, Tensor) or value.dim() == 0:
        moments[key] = value.clone() if isinstance(value, Tensor) else value
        return
    if key not in moments:
        moments[key] = torch.zeros_like(piece.flat, dtype=value.dtype)
    moments[key][piece.begin : piece.begin + piece.count] = value


def _engine(
    model: nn.Module,
    inner: torch.optim.Optimizer,
    settings: Mapping[str, Any],
    device: torch.device,
) -> Any:
    """DeepSpeed's own, on our group of processes."""
    os.environ["DS_ACCELERATOR"] = device.type
    os.environ["LOCAL_RANK"] = str(device.index or 0)  # it chooses the device by this
    import deepspeed
    import deepspeed.ops

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # sums of inference alone, on a CPU; it would be compiled first
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    found: Any = deepspeed.initialize(
        model=model, optimizer=inner, config=dict(settings), dist_init_required=False
    )
    return found[0]
