"""Named weight sets: the policy, and the old, EMA and reference weights kept beside it.

A set holds values of the *trainable* parameters only. With LoRA these are the adapters: a set costs
a few megabytes, and the reference, the network with its adapters disabled, costs nothing; it is a
set of adapters where the run starts from some. With full fine-tuning a set is a copy of the
network, which may be kept on the CPU. A critic is trained with the policy and is part of no other
set.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from rlfactory.hardware.fsdp import FSDPParameters

POLICY, REFERENCE, OLD, EMA = "policy", "reference", "old", "ema"

SWAPPED_AT_ONCE = 16
"""Tensors that are exchanged together, where values are copied."""


class WeightSets:
    """The trained parameters of a model, and named copies that can be swapped into the network.

    `with weights(name):` runs the network with another set; outside of it, the network holds the
    policy. With sharded parameters every set is sharded alike, and such a `with` is only for passes
    without gradient.

    Attributes:
        parameters: all that is trained, by name, the critic's parameters included; DTensors where
            they are sharded.
        sharding: how `parameters` are sharded; None if this process has them in full.
        gathering: how passes get a sharded network, which may be frozen; None if this process has
            it in full.
        in_use: the name of the set that the network holds now.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        adapters_off: Callable[[], AbstractContextManager[None]] | None = None,
        critic: Mapping[str, nn.Parameter] | None = None,
        *,
        offload: bool = False,
    ) -> None:
        """
        Args:
            parameters: the policy's trainable parameters by name.
            adapters_off: disables LoRA adapters; then `reference` needs no copy.
            critic: parameters that are trained but are part of no other set.
            offload: keep the other sets on the CPU, in pinned memory, where they are copies of a
                network; LoRA's, which are small, stay on the device.
        """
        self.parameters = {**parameters, **(critic or {})}
        self._policy = dict(parameters)
        self._adapters_off = adapters_off
        self._offload = offload and adapters_off is None
        self.sharding: FSDPParameters | None = None
        self.gathering: FSDPParameters | None = None
        self._sets: dict[str, list[Tensor]] = {}
        # where an offloaded set is in the network, the policy's values
        self._policy_on_cpu: list[Tensor] = []
        self.in_use = POLICY

    def shard(self, sharded: Mapping[str, nn.Parameter], sharding: "FSDPParameters") -> None:
        """Replace parameters by the `sharded` ones, of a network that is sharded now.

        Call it before sets are added. None are sharded where all that is trained are adapters.
        """
        self.parameters |= sharded
        self._policy |= {name: sharded[name] for name in self._policy if name in sharded}
        self.gathering = sharding
        self.sharding = sharding if sharded else None

    def _local(self, tensor: Tensor) -> Tensor:
        """This rank's part of a parameter, in the same memory."""
        return tensor.data if self.sharding is None else self.sharding.local(tensor.detach())

    def own_parameters(self) -> list[Tensor]:
        """This rank's part of all trained parameters, in the same memory."""
        return [self._local(parameter) for parameter in self.parameters.values()]

    def _live(self) -> list[Tensor]:
        return [self._local(parameter) for parameter in self._policy.values()]

    @property
    def trains_critic(self) -> bool:
        """Whether a critic is trained beside the policy."""
        return len(self.parameters) > len(self._policy)

    def policy_gradients(self) -> list[Tensor]:
        """This rank's part of the gradients of the policy's parameters, where there are any."""
        return [self._local(p.grad) for p in self._policy.values() if p.grad is not None]

    def clear_policy_gradients(self) -> None:
        """Drop them: an optimizer leaves parameters without a gradient where they are."""
        for parameter in self._policy.values():
            parameter.grad = None

    @torch.no_grad()
    def is_policy(self, name: str) -> bool:
        """Whether the values of a set are the policy's, as far as this rank has them.

        A divergence from such a set has a gradient of 0, but for rounding. The device is waited
        for.
        """
        if (kept := self._sets.get(name)) is None:
            return name == POLICY or _add_nothing(self._policy)
        pairs = zip(self._live(), kept, strict=True)
        return all(torch.equal(live, value.to(live.device)) for live, value in pairs)

    def add(self, name: str, *, copied: bool = False) -> None:
        """Keep a set under `name`, a copy of the present policy; nothing if there is one. Adapters
        that are off are a reference too, unless it is to be `copied`.
        """
        if name == POLICY or name in (self._sets if copied else self):
            return
        self._sets[name] = [self._copy(tensor) for tensor in self._live()]

    def refer_to_policy(self) -> None:
        """Let the reference, if there is one, be the present policy; adapters are then copied."""
        if REFERENCE in self:
            self.add(REFERENCE, copied=True)
            self.update(REFERENCE, decay=0.0)

    def _copy(self, tensor: Tensor) -> Tensor:
        return _on_cpu(tensor).copy_(tensor) if self._offload else tensor.clone()

    def __contains__(self, name: str) -> bool:
        adapters = name == REFERENCE and self._adapters_off is not None
        return name == POLICY or adapters or name in self._sets

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Run the network with the weights of set `name`; KeyError where there is none.

        Nested in a `with` of the same set, it swaps nothing; nor does `policy`, which therefore
        must not be nested in another set.
        """
        passes = nullcontext() if self.gathering is None else self.gathering.unsharded()
        with self.swapped(name), passes:
            yield

    @contextmanager
    def swapped(self, name: str) -> Iterator[None]:
        """The network holds set `name`, to be read, not run: no other rank has to take part."""
        outer, self.in_use = self.in_use, name
        try:
            if name in (POLICY, outer):
                yield
            elif name == REFERENCE not in self._sets and self._adapters_off is not None:
                with self._adapters_off():
                    yield
            else:
                self._bring(name, outer)
                try:
                    yield
                finally:
                    self._return(name, outer)
        finally:
            self.in_use = outer

    @torch.no_grad()
    def _bring(self, name: str, outer: str) -> None:
        """Put the values of a set into the network, which holds those of `outer`."""
        if not self._offload:
            self._swap(name)
            return
        if outer == POLICY:
            self._copy_policy_to_cpu()
        self._fill(self._sets[name])

    @torch.no_grad()
    def _return(self, name: str, outer: str) -> None:
        """Put the values of `outer` back into the network, which holds those of `name`."""
        if self._offload:
            self._fill(self._policy_on_cpu if outer == POLICY else self._sets[outer])
        else:
            self._swap(name)

    def _copy_policy_to_cpu(self) -> None:
        live = self._live()
        if not self._policy_on_cpu:
            self._policy_on_cpu = [_on_cpu(tensor) for tensor in live]
        for kept, tensor in zip(self._policy_on_cpu, live, strict=True):
            kept.copy_(tensor, non_blocking=True)

    def _fill(self, values: Sequence[Tensor]) -> None:
        # In place, since a shard is a view of FSDP's memory. Copies between pinned memory and the
        # device are done in the order of the stream, so the host waits for none of them.
        for tensor, value in zip(self._live(), values, strict=True):
            tensor.copy_(value, non_blocking=True)
        if self.sharding is not None:
            self.sharding.values_changed()

    def _wait(self) -> None:
        """Wait for copies from and to the CPU, before the host reads or writes what they use."""
        if self._offload and any(p.is_cuda for p in self._policy.values()):
            torch.cuda.current_stream().synchronize()

    def _swap(self, name: str) -> None:
        """Exchange the network's values with those of a set on the same device."""
        stored = self._sets[name]
        if self.sharding is not None:
            # FSDP's all-gather reads the memory of a shard: in place, some tensors at a time, so
            # that no second set is on the device
            live = self._live()
            for i in range(0, len(live), SWAPPED_AT_ONCE):
                part = slice(i, i + SWAPPED_AT_ONCE)
                policy = [self._copy(tensor) for tensor in live[part]]
                torch._foreach_copy_(live[part], stored[part])
                stored[part] = policy
            self.sharding.values_changed()
            return
        for i, parameter in enumerate(self._policy.values()):
            # on one device, exchanging the references costs nothing
            stored[i], parameter.data = parameter.data, stored[i]

    @torch.no_grad()
    def update(self, name: str, decay: float) -> None:
        """`stored <- decay * stored + (1 - decay) * policy`, in place."""
        stored = self._sets[name]
        if not self._offload:
            torch._foreach_lerp_(stored, self._live(), 1 - decay)
            return
        # on the CPU: the policy is copied there, not the set to the device
        self._copy_policy_to_cpu()
        self._wait()
        for average, policy in zip(stored, self._policy_on_cpu, strict=True):
            average.lerp_(policy, 1 - decay)

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors of all sets under `set/parameter`; this rank's shards if sharded."""
        policy = {f"{POLICY}/{k}": self._local(p.detach()) for k, p in self.parameters.items()}
        others = {
            f"{name}/{k}": tensor
            for name, tensors in self._sets.items()
            for k, tensor in zip(self._policy, tensors, strict=True)
        }
        return policy | others

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the policy and every set in `state`; missing sets are added.

        A critic stays as it is where `state` has none, and one that the model has not is left out.
        """
        self._wait()
        names = {key.split("/", 1)[0] for key in state}
        for name in sorted(names):
            self.add(name, copied=True)
        for key, parameter in self.parameters.items():
            if f"{POLICY}/{key}" in state or not key.startswith("critic."):
                self._local(parameter).copy_(state[f"{POLICY}/{key}"])
        for name in names - {POLICY}:
            for key, target in zip(self._policy, self._sets[name], strict=True):
                target.copy_(state[f"{name}/{key}"])
        if self.gathering is not None:
            self.gathering.values_changed()

    def expected(self, name: str) -> dict[str, Tensor]:
        """The parameters whose values a saved set `name` holds, under `set/parameter`: a critic's
        are in the policy's alone.
        """
        parameters = self.parameters if name == POLICY else self._policy
        return {f"{name}/{key}": parameter for key, parameter in parameters.items()}

    def sharded_state_dict(self) -> dict[str, Tensor]:
        """`state_dict` with DTensors in the place of shards, on the same memory.

        It is what torch.distributed.checkpoint saves, and loads into, in place.
        """
        state, sharding = self.state_dict(), self.sharding
        if sharding is None:
            return state
        return {key: sharding.dtensor(key.split("/", 1)[1], part) for key, part in state.items()}

    def sharded_optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        """An optimizer's tensors under `parameter/moment`; DTensors where they are sharded.

        They share the optimizer's memory, so that torch.distributed.checkpoint can load into them.
        An optimizer that has made no step yet has none. Its other values are in `state_dict()`.
        """
        return {
            f"{name}/{key}": value if self.sharding is None else self.sharding.dtensor(name, value)
            for name, parameter in self.parameters.items()
            for key, value in optimizer.state.get(parameter, {}).items()
            if isinstance(value, Tensor)
        }

    def full_state_dict(self) -> dict[str, Tensor]:
        """`state_dict` with full tensors on the CPU. Collective: all ranks call it together."""
        # sorted: ranks may have added their sets in different orders
        whole = {
            key: part.full_tensor() if hasattr(part, "full_tensor") else part.detach()
            for key, part in sorted(self.sharded_state_dict().items())
        }
        return {key: tensor.to("cpu", copy=True) for key, tensor in whole.items()}

    def load_full_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `full_state_dict` returned, whatever the number of ranks was then."""
        if (sharding := self.sharding) is not None:
            state = {k: sharding.shard(k.split("/", 1)[1], value) for k, value in state.items()}
        self.load_state_dict(state)


def _add_nothing(adapters: Mapping[str, Tensor]) -> bool:
    """Whether B A of each of LoRA's layers is 0, but for the rounding of an orthogonal start."""
    second = {name: re.sub(r"(lora_(embedding_)?)A", r"\1B", name) for name in adapters}
    pairs = [(adapters[a], adapters[b]) for a, b in second.items() if a != b]
    return 2 * len(pairs) == len(adapters) and all(_is_zero_product(*pair) for pair in pairs)


def _is_zero_product(a: Tensor, b: Tensor) -> bool:
    a, b = a.double().flatten(1), b.double().flatten(1)
    # |B A|^2 by matrices of the rank's size
    square = ((b.T @ b) * (a @ a.T)).sum()
    return bool(square <= 1e-12 * a.square().sum() * b.square().sum())


def _on_cpu(tensor: Tensor) -> Tensor:
    """Memory for a copy on the CPU, pinned if `tensor` is on CUDA."""
    return torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
