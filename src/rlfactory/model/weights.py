"""Named weight sets: the policy and the other networks it is compared with or sampled from.

All of them are values of the *trainable* tensors alone. With LoRA these are the adapters, so a set
costs a few megabytes and the reference, which is the network without adapters, nothing at all; with
full fine-tuning a set is a copy, which may be kept on the CPU. A critic is trained with the policy
and belongs to no other set.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

POLICY, REFERENCE, OLD, EMA = "policy", "reference", "old", "ema"


class Weights:
    """`policy` is live; every other set is kept beside it, swapped in for a `with`.

    `parameters` is all that is trained, `critic` the part of it that has no other set; `in_use` is
    the set that the network has now. With `offload` the other sets are kept on the CPU: a swap then
    exchanges the values, a tensor at a time, and takes no more of the device.
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
        self.is_divided = False
        self._sets: dict[str, list[Tensor]] = {}
        self.in_use = POLICY

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
                yield
            elif name == REFERENCE and self._adapters_off is not None:
                with self._adapters_off():
                    yield
            else:
                self._swap(name)
                try:
                    yield
                finally:
                    self._swap(name)
        finally:
            self.in_use = outer

    def _swap(self, name: str) -> None:
        kept = self._sets[name]
        for i, parameter in enumerate(self._compared.values()):
            if self._offload:
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

    def state_dict(self) -> dict[str, Tensor]:
        """Every set's tensors under `set/parameter`."""
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
