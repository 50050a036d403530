"""Named weight sets: the policy and the other networks it is compared with or sampled from.

All of them are values of the *trainable* tensors alone. With LoRA these are the adapters, so a set
costs a few megabytes and the reference, which is the network without adapters, nothing at all; with
full fine-tuning a set is a copy, which may be kept on the CPU. A critic is trained with the policy
and belongs to no other set.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn

POLICY, REFERENCE, OLD, EMA = "policy", "reference", "old", "ema"


class Division(Protocol):
    """How a network's parameters, or an optimiser's moments alone, are divided among processes."""

    @property
    def processes(self) -> int:
        """Among how many moments are divided."""

    @property
    def holders(self) -> int:
        """Among how many parameters are divided."""

    def gathered(self, anew: bool = False) -> AbstractContextManager[None]:
        """The network whole, for passes without a gradient."""

    def regather(self) -> None:
        """Where it is whole, have it so with the values that there are now."""

    def whole(self, name: str, part: Tensor) -> Tensor:
        """A tensor of a parameter's form, on the CPU, from all processes' parts."""

    def part(self, name: str, whole: Tensor) -> Tensor:
        """This process's part of it."""

    def whole_moment(self, name: str, part: Tensor) -> Tensor:
        """As `whole`, of what an optimiser has of a parameter."""

    def part_moment(self, name: str, whole: Tensor) -> Tensor:
        """As `part`, of what an optimiser has of a parameter."""

    def standing_in(self, values: Mapping[str, Tensor]) -> AbstractContextManager[None]:
        """The network as one that has these whole parameters, for what saves it."""


class Weights:
    """`policy` is live; every other set is kept beside it, swapped in for a `with`.

    `parameters` is all that is trained, `critic` the part of it that has no other set; `in_use` is
    the set that the network has now. With `offload` the other sets are kept on the CPU: a swap then
    exchanges the values, a tensor at a time, and takes no more of the device. Where the network is
    divided among processes, so is every set; a `with` is then for passes without a gradient.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        adapters_off: Callable[[], AbstractContextManager[None]] | None = None,
        critic: Mapping[str, nn.Parameter] | None = None,
        *,
        offload: bool = False,
    ) -> None:
        self.parameters = {**parameters, **(critic or {})}
        self._compared = dict(parameters)
        self._adapters_off = adapters_off
        self._offload = offload
        self.division: Division | None = None
        self._sets: dict[str, list[Tensor]] = {}
        self.in_use = POLICY

    def divide(self, parts: Mapping[str, nn.Parameter], division: Division) -> None:
        """Go on with this process's `parts` of parameters, by name."""
        self.parameters |= parts
        self._compared |= {name: parts[name] for name in self._compared if name in parts}
        self.division = division

    def add(self, name: str) -> None:
        """Keep a set under `name`, equal to the policy as it is now."""
        if name in self:
            return
        self._sets[name] = [self._copy(p.detach()) for p in self._compared.values()]

    def _copy(self, tensor: Tensor) -> Tensor:
        return tensor.to("cpu", copy=True) if self._offload else tensor.clone()

    def __contains__(self, name: str) -> bool:
        adapters = name == REFERENCE and self._adapters_off is not None
        return name == POLICY or adapters or name in self._sets

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Run the network with the weights of `name`; within itself it changes nothing."""
        outer, self.in_use = self.in_use, name
        try:
            if name in (POLICY, outer):
                with self._gathered(anew=False):
                    yield
            elif name == REFERENCE and self._adapters_off is not None:
                with self._adapters_off():
                    yield
            else:
                self._swap(name)
                try:
                    with self._gathered(anew=True):
                        yield
                finally:
                    self._swap(name)
                    if self.division is not None:
                        self.division.regather()
        finally:
            self.in_use = outer

    def _gathered(self, anew: bool) -> AbstractContextManager[None]:
        return nullcontext() if self.division is None else self.division.gathered(anew)

    def _swap(self, name: str) -> None:
        kept = self._sets[name]
        for i, parameter in enumerate(self._compared.values()):
            if self._offload or self.division is not None:
                policy = self._copy(parameter.data)
                parameter.data.copy_(kept[i])
                kept[i] = policy
            else:
                kept[i], parameter.data = parameter.data, kept[i]

    @torch.no_grad()
    def update(self, name: str, decay: float) -> None:
        """`kept <- decay * kept + (1 - decay) * policy`, in place, where the set is kept."""
        kept, live = self._sets[name], [p.data for p in self._compared.values()]
        if not self._offload:
            torch._foreach_lerp_(kept, live, 1 - decay)
            return
        for mine, theirs in zip(kept, live, strict=True):
            mine.lerp_(theirs.to(mine.device), 1 - decay)

    def whole_state(self) -> dict[str, Tensor]:
        """`state_dict` on the CPU, undivided; all processes ask for it together."""
        parts, division = self.state_dict(), self.division
        if division is None:
            return {key: part.to("cpu", copy=True) for key, part in parts.items()}
        # processes may have added their sets in different orders, and each tensor is put together
        # from what they hand over at the same time
        return {key: division.whole(key.split("/", 1)[1], parts[key]) for key in sorted(parts)}

    def load_whole(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `whole_state` gave, in however many processes that was."""
        division = self.division
        if division is None:
            self.load_state_dict(state)
            return
        parts = {key: division.part(key.split("/", 1)[1], value) for key, value in state.items()}
        self.load_state_dict(parts)

    def state_dict(self) -> dict[str, Tensor]:
        """Every set's tensors under `set/parameter`; of a divided network this process's part."""
        live = {f"{POLICY}/{k}": p.detach() for k, p in self.parameters.items()}
        kept = {
            f"{name}/{k}": t
            for name, tensors in self._sets.items()
            for k, t in zip(self._compared, tensors, strict=True)
        }
        return live | kept

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the policy and each set that was saved."""
        names = {key.split("/", 1)[0] for key in state}
        for name in sorted(names - {POLICY}):
            self.add(name)
        for key, parameter in self.parameters.items():
            parameter.data.copy_(state[f"{POLICY}/{key}"])
        for name in names - {POLICY}:
            for key, target in zip(self._compared, self._sets[name], strict=True):
                target.copy_(state[f"{name}/{key}"])
