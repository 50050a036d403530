"""FSDP2: a network whose parameters are sharded over the ranks (torch's `fully_shard`).

The optimizer and the weight sets have the `DTensor` parameters of the network itself. Adapters on
a frozen network are small and stay in full in every rank; the frozen network is sharded.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor

from rlfactory.hardware.gradient_tree import blocks

try:
    from torch.distributed import set_timeout  # type: ignore[attr-defined]
except ImportError:  # an older torch
    from torch.distributed.distributed_c10d import _set_pg_timeout as set_timeout

REPLICATE, SHARD = "replicate", "shard"
"""The dimensions of the mesh: copies of the network, and the ranks that share one."""


class FSDPParameters:
    """Shards the network of a model, and the tensors of its weight sets and optimizer.

    A shard is a plain tensor, this rank's rows. Methods that return or need full tensors are
    collective: every rank calls them in the same order.

    An ordinary pass gathers one block after another, so all ranks make equally many; inside
    `unsharded` every rank has the full network, for passes without gradient, of which ranks may
    then make different numbers. A critic's head is no part of the network and is in full in every
    rank.

    Args:
        shard_size: ranks that share one copy of the network; None: all.
        offload: keep shards, gradients and the optimizer's moments on the CPU.
        exact: compute what one process does, to the bit: parameters are gathered as they are, and
            the norm is that of the full gradients.
        timeout: until a rank that does not answer counts as lost.
    """

    def __init__(
        self,
        *,
        timeout: timedelta,
        shard_size: int | None = None,
        offload: bool = False,
        exact: bool = False,
    ) -> None:
        self._timeout = timeout
        self.shard_size = shard_size or dist.get_world_size()
        self.offload = offload
        self._exact = exact
        self.passes_are_equal = False
        self._device = torch.device("cpu")
        self._network: Any = None
        self._sharded: dict[str, DTensor] = {}  # trained parameters by name
        self._is_unsharded = False

    def shard_model(self, model: Any, device: str) -> None:
        """Shard a model's network, and give its weight sets the sharded parameters.

        Args:
            model: an ImageModel or TextModel, whose optimizer is not made yet.
            device: "cpu" or "cuda".
        """
        # No adapter changes a prediction in place, which alone would harm (SD3 returns a view).
        warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
        network = self._network = model.network
        self._device = torch.device(device)
        options: dict[str, Any] = {
            "mesh": self._mesh(device),
            "mp_policy": MixedPrecisionPolicy(cast_forward_inputs=False)
            if self._exact
            else mixed_precision(getattr(model, "precision", None)),
            "offload_policy": CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
            if self.offload
            else OffloadPolicy(),
            "ignored_params": adapters(network),
        }
        loaded = LoadedNetwork(network, self._device)
        for block in blocks(network):
            loaded.materialise(block)
            fully_shard(block, reshard_after_forward=True, **options)
        loaded.materialise(network)
        # False for the root: its own parameters are needed first in the backward pass
        fully_shard(network, reshard_after_forward=False, **options)
        for module in self._modules():
            # a rank's loss is weighted by its share of the update's samples: sum, don't average
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
        network.inside = _call
        register_fsdp_forward_method(network, "inside")
        network.inside(int)  # FSDP takes the module of the first pass for the root
        network.reshard()
        model.inside, model.may_share_prompts = network.inside, False
        self._sharded = {
            name: parameter
            for name, parameter in network.named_parameters()
            if isinstance(parameter, DTensor) and parameter.requires_grad
        }
        model.weights.shard(self._sharded, self)
        if self._exact and self._sharded:  # `whole_gradients` takes them, of the gathered network
            self.set_gradient_sync(False)
            network.set_reshard_after_backward(False)

    def _mesh(self, device: str) -> DeviceMesh:
        sizes: tuple[int, ...] = (dist.get_world_size() // self.shard_size, self.shard_size)
        begin = int(sizes[0] == 1)  # one copy: a mesh of shards alone
        names = (REPLICATE, SHARD)[begin:]
        mesh = init_device_mesh(device, sizes[begin:], mesh_dim_names=names)
        for group in mesh.get_all_groups():  # a group of some ranks has torch's own, half an hour
            set_timeout(self._timeout, group)
        return mesh

    def _modules(self) -> Iterator[FSDPModule]:
        return (m for m in self._network.modules() if isinstance(m, FSDPModule))

    @contextmanager
    def unsharded(self) -> Iterator[None]:
        """Inside the block every rank has the full network; blocks may be nested.

        Nothing is gathered while `passes_are_equal`: each pass then gathers block by block.
        """
        if self._is_unsharded or self.passes_are_equal:
            yield
            return
        self._unshard_all()
        try:
            yield
        finally:
            self._reshard_all()

    def values_changed(self) -> None:
        """The shards have other values now: what is gathered is dropped or gathered again."""
        if self._is_unsharded:
            self._unshard_all()
        else:
            self._network.reshard()

    def passes_end(self) -> None:
        """The root, which stays gathered after a pass without a backward pass, is dropped."""
        if not self._is_unsharded:
            self._network.reshard()

    def set_gradient_sync(self, is_on: bool) -> None:
        """Whether backward passes reduce gradients, or add them up in full in every rank."""
        self._network.set_requires_gradient_sync(is_on)

    @contextmanager
    def whole_gradients(
        self, parameters: Sequence[nn.Parameter]
    ) -> Iterator[Sequence[nn.Parameter]]:
        """As `Hardware.whole_gradients`; adapters alone are in full anyway, on a sharded network
        that ordinary passes gather.
        """
        if not self._sharded:
            yield parameters
            return
        with self.unsharded():
            gathered = dict(self._network.named_parameters())
            whole = {id(shard): gathered[name] for name, shard in self._sharded.items()}
            yield [whole.get(id(parameter), parameter) for parameter in parameters]
        for name, shard in self._sharded.items():
            parameter, own = gathered[name], self.local(shard)
            shard.grad = None
            if parameter.grad is not None:
                part = self.shard(name, parameter.grad).to(own.device, copy=True)
                shard.grad = self.dtensor(name, part)
            parameter.grad = None

    def _unshard_all(self) -> None:
        for module in self._modules():
            module.reshard()  # unshard() does nothing where old values are still in full
            module.set_reshard_after_forward(False, recurse=False)
            module.unshard()
        self._is_unsharded = True

    def _reshard_all(self) -> None:
        for module in self._modules():
            module.reshard()
            module.set_reshard_after_forward(module is not self._network, recurse=False)
        self._is_unsharded = False

    @staticmethod
    def replicated(parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        """Those that are in full in every rank."""
        return [parameter for parameter in parameters if not isinstance(parameter, DTensor)]

    def clip(
        self,
        parameters: Sequence[nn.Parameter],
        limit: float,
        unscale: Callable[[Tensor], tuple[Tensor, Tensor]],
    ) -> Tensor:
        """Clip the gradients by their global norm, of sums over all ranks.

        FSDP has summed the gradients of sharded parameters in the backward pass.

        `unscale` gives, of the norm of scaled gradients, that of the gradients and the factor
        between. Returns the norm before clipping; nothing waits for the device here.
        """
        gradients = [p.grad for p in parameters if p.grad is not None]
        if self._exact:
            whole = (g.full_tensor() if isinstance(g, DTensor) else g for g in gradients)
            norm, factor = unscale(nn.utils.get_total_norm([*whole]))
        else:
            norm, factor = unscale(self._norm(parameters))
        factor = factor * (limit / (norm + 1e-6)).clamp(max=1.0)
        rows = [self.local(gradient) for gradient in gradients]
        for device in {part.device for part in rows}:  # shards may be offloaded
            there = [part for part in rows if part.device == device]
            torch._foreach_mul_(there, factor.to(device))
        return norm

    def _norm(self, parameters: Sequence[nn.Parameter]) -> Tensor:
        """The global norm of the gradients, from the squares of the shards' norms."""
        own = [p.grad for p in self.replicated(parameters) if p.grad is not None]
        shards = [self.local(p.grad) for p in self._sharded.values() if p.grad is not None]
        square = self._square_of_norm(shards)
        dist.all_reduce(square)
        # each copy of the network has counted its gradient once
        square = square * self.shard_size / dist.get_world_size() + self._square_of_norm(own)
        return square.sqrt()

    def _square_of_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        # double, so that the number of shards over which it is summed does not matter
        norm = nn.utils.get_total_norm(gradients).to(self._device)
        return norm.double().square()

    def dtensor(self, name: str, part: Tensor) -> Tensor:
        """A `DTensor` on the memory of this rank's rows of a parameter or of one of its moments; a
        tensor of any other shape is returned as it is.
        """
        like = self._sharded.get(name)
        if like is None or isinstance(part, DTensor) or part.shape != self.local(like).shape:
            return part
        return DTensor.from_local(
            part,
            like.device_mesh,
            like.placements,
            run_check=False,
            shape=like.shape,
            stride=like.stride(),
        )

    @staticmethod
    @torch.no_grad()
    def local(part: Tensor) -> Tensor:
        """This rank's rows of a `DTensor`, in the same memory; a plain tensor as it is."""
        return part.to_local() if isinstance(part, DTensor) else part

    def shard(self, name: str, whole: Tensor) -> Tensor:
        """This rank's rows of a full tensor."""
        like = self._sharded.get(name)
        if like is None or whole.shape != like.shape:
            return whole
        # as torch.chunk, which DTensor's Shard(0) uses: the last ranks may have fewer rows, or none
        rows = -(-len(whole) // self.shard_size)
        begin = min(rows * like.device_mesh.get_local_rank(SHARD), len(whole))
        return whole[begin : begin + rows]


def adapters(network: nn.Module) -> set[nn.Parameter]:
    """The trained parameters of LoRA; none with full fine-tuning, of one network of two also."""
    return {p for name, p in network.named_parameters() if p.requires_grad and "lora_" in name}


def mixed_precision(precision: Any) -> MixedPrecisionPolicy:
    """The dtype of gathered parameters: that in which the network computes; sums are float32.

    A network that computes in two dtypes is gathered in float32, since FSDP has one dtype for all
    passes. Inputs are not cast: autocast does so where an operation needs it, and leaves times,
    rotary angles and masks in float32.

    Args:
        precision: the model's `Precision`; None is float32.
    """
    dtypes = {precision.rollout, precision.learning} if precision else {torch.float32}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32
    return MixedPrecisionPolicy(
        param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False
    )


def _call(work: Any, *arguments: Any) -> Any:
    return work(*arguments)


class LoadedNetwork:
    """Moves a network's tensors to the device; those on `meta` get the values of rank 0.

    So that only rank 0 reads the network, into main memory, and no device holds more of it in full
    than one module. A collective: all ranks make the same calls.

    Args:
        network: has its values in rank 0; in other ranks they may be on `meta`.
        device: where it will compute.
    """

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        self._device = device
        tensors = dict(_named_tensors(network))
        is_missing = torch.tensor(float(any(tensor.is_meta for tensor in tensors.values())))
        dist.all_reduce(is_missing, dist.ReduceOp.MAX)
        self._is_missing = bool(is_missing)
        # a network on meta was built from its configuration, which does not name all dtypes
        described = [{name: tensor.dtype for name, tensor in tensors.items()}]
        if self._is_missing:
            dist.broadcast_object_list(described)
        self._dtypes = {id(tensors[name]): dtype for name, dtype in described[0].items()}
        self._done: dict[int, tuple[Tensor, Tensor]] = {}  # by the identity of the first

    def materialise(self, module: nn.Module) -> None:
        """Move those tensors of `module` that are not there yet."""
        for part in module.modules():
            for group in (part._parameters, part._buffers, part.__dict__):
                for name, tensor in [*group.items()]:
                    if isinstance(tensor, Tensor) and not isinstance(tensor, DTensor):
                        group[name] = self._moved(tensor)  # type: ignore[assignment]

    @torch.no_grad()
    def _moved(self, tensor: Tensor) -> Tensor:
        """The tensor on the device: the same object, but for one on `meta`."""
        if id(tensor) in self._done:  # shared by two modules
            return self._done[id(tensor)][1]
        moved: Any = tensor
        if tensor.is_meta:
            moved = torch.empty_like(tensor, dtype=self._dtypes[id(tensor)], device=self._device)
            if isinstance(tensor, nn.Parameter):
                moved = nn.Parameter(moved, tensor.requires_grad)
        else:
            moved.data = tensor.data.to(self._device)
        if self._is_missing:
            dist.broadcast(moved.data, 0)
        # both are kept, so that no other tensor gets their identity
        self._done |= {id(tensor): (tensor, moved), id(moved): (moved, moved)}
        return moved


def _named_tensors(network: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters, buffers, and tensors in plain attributes, such as Qwen-Image's rotations."""
    plain = [
        (f"{prefix}.{name}", value)
        for prefix, module in network.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor)
    ]
    return [*network.named_parameters(), *network.named_buffers(), *plain]
