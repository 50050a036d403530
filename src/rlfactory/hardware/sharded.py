"""FSDP2: a network whose parameters are divided among processes (torch's `fully_shard`).

What learns sees plain tensors alone, each process its own rows: the parameters that an optimiser
moves and weight sets are kept of are windows on the memory of the divided ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from rlfactory.hardware.base import HardwareError
from rlfactory.hardware.gradients import sum_gradients


class Sharded:
    """Divides the network of a model, and steps with gradients that are divided alike.

    Within `gathered` the network is whole, for passes without a gradient: processes may then make
    as many as they like. All others they make equally often, since they wait for each other in
    each. What is no part of the network, as a critic, is whole everywhere.
    """

    def __init__(self) -> None:
        self._network: Any = None
        self._divided: dict[str, DTensor] = {}  # by name
        self._windows: dict[int, DTensor] = {}  # by the identity of what an optimiser moves
        self._places: dict[str, Any] = {}
        self._class: type[nn.Module] = nn.Module
        self._is_whole = False

    def divide(self, model: Any, device: str) -> None:
        """Have a model's network divided, and its weights say so."""
        if not hasattr(FSDPModule, "set_force_sum_reduction_for_comms"):
            raise HardwareError("hardware=fsdp2 needs torch 2.8 or newer; hardware=ddp does not")
        network = self._network = model.network
        self._class = type(network)
        names = {id(p): name for name, p in network.named_parameters()}
        state = network.state_dict(keep_vars=True)
        self._places = {key: names.get(id(value), value) for key, value in state.items()}
        mesh = init_device_mesh(device, (dist.get_world_size(),))
        for block in blocks(network):
            fully_shard(block, mesh=mesh)
        fully_shard(network, mesh=mesh, reshard_after_forward=True)
        for module in self._modules():
            # each process's loss is its share of the whole one's, so gradients are added
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
        self._divided = {n: p for n, p in network.named_parameters() if isinstance(p, DTensor)}
        windows = {name: nn.Parameter(_rows(p)) for name, p in self._divided.items()}
        self._windows = {id(window): self._divided[name] for name, window in windows.items()}
        network.inside = _call
        register_fsdp_forward_method(network, "inside")
        network.inside(int)  # the first pass is the root's, whoever makes the next
        model.inside = network.inside
        model.weights.divide(windows, self)

    def _modules(self) -> Iterator[FSDPModule]:
        return (m for m in self._network.modules() if isinstance(m, FSDPModule))

    @contextmanager
    def gathered(self, anew: bool = False) -> Iterator[None]:
        """The network whole; once more where it is already, `anew` after its values changed."""
        was = self._is_whole
        if anew or not was:
            self._gather()
        try:
            yield
        finally:
            if not was:
                self._scatter()

    def regather(self) -> None:
        """Where the network is whole, have it so with the values that there are now."""
        if self._is_whole:
            self._gather()

    def _gather(self) -> None:
        for module in self._modules():
            module.reshard()
            module.set_reshard_after_forward(False, recurse=False)
            module.unshard()
        self._is_whole = True

    def _scatter(self) -> None:
        for module in self._modules():
            module.reshard()
            module.set_reshard_after_forward(True, recurse=False)
        self._is_whole = False

    def step(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], limit: float
    ) -> float:
        """Clip by the global norm and update, unless that is not finite."""
        rest = [p for p in parameters if id(p) not in self._windows]
        sum_gradients(rest)
        for parameter in parameters:
            divided = self._windows.get(id(parameter))
            if divided is not None and divided.grad is not None:
                assert isinstance(divided.grad, DTensor)
                parameter.grad = divided.grad.to_local()
        norm = self._norm(parameters)
        factor = min(limit / (norm + 1e-6), 1.0)
        gradients = [p.grad for p in parameters if p.grad is not None]
        torch._foreach_mul_(gradients, factor)
        if norm < float("inf"):
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self.forget()
        return norm

    def forget(self) -> None:
        """Clear the gradients of what is divided."""
        for divided in self._divided.values():
            divided.grad = None

    def _norm(self, parameters: Sequence[nn.Parameter]) -> float:
        """That of all processes' parts, and of what is whole everywhere once."""
        squares = torch.zeros(2, dtype=torch.float64)
        for parameter in parameters:
            if parameter.grad is not None:
                square = parameter.grad.detach().double().square().sum().cpu()
                squares[int(id(parameter) in self._windows)] += square
        parts = squares[1:].clone()
        dist.all_reduce(parts)
        return float((squares[0] + parts[0]).sqrt())

    @property
    def processes(self) -> int:
        """Among how many it is divided."""
        return dist.get_world_size()

    @property
    def holders(self) -> int:
        """The same of parameters and moments."""
        return self.processes

    def whole(self, name: str, part: Tensor) -> Tensor:
        """A tensor of a parameter's form on the CPU, of which each process has its `part`."""
        of = self._divided.get(name)
        if of is None or part.shape != _rows(of).shape:
            return part.detach().to("cpu", copy=True)
        here = part.detach().to(of.device_mesh.device_type)
        mine = DTensor.from_local(
            here, of.device_mesh, of.placements, run_check=False, shape=of.shape, stride=of.stride()
        )
        return mine.full_tensor().to("cpu", copy=True)

    def part(self, name: str, whole: Tensor) -> Tensor:
        """The rows of a whole tensor that are this process's."""
        of = self._divided.get(name)
        if of is None or whole.shape != of.shape:
            return whole
        rows = -(-len(whole) // dist.get_world_size())
        begin = min(rows * dist.get_rank(), len(whole))
        return whole[begin : begin + rows]

    whole_moment, part_moment = whole, part  # moments are divided as parameters are

    @contextmanager
    def standing_in(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """Within this the network says that its parameters are these whole ones: for what saves."""
        kept = {k: values[v] if isinstance(v, str) else v for k, v in self._places.items()}
        network, divided = self._network, type(self._network)
        network.__class__ = self._class
        network.state_dict = lambda *_, **__: dict(kept)
        try:
            yield
        finally:
            del network.state_dict
            network.__class__ = divided


def blocks(network: nn.Module) -> list[nn.Module]:
    """What is gathered by itself: the members of a network's outermost lists of modules."""
    found = list[nn.Module]()
    for child in network.children():
        if isinstance(child, nn.ModuleList):
            found += [block for block in child if any(True for _ in block.parameters())]
        else:
            found += blocks(child)
    return found


def _rows(divided: DTensor) -> Tensor:
    """This process's, in the same memory."""
    with torch.no_grad():
        return divided.to_local()


def _call(work: Any, *arguments: Any) -> Any:
    return work(*arguments)
