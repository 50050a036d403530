"""ZeRO's third stage by DeepSpeed: parameters are divided too, and gathered as they are used."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from rlfactory.hardware.zero import Piece, Zero


class Zero3(Zero):
    """What learns sees windows on this process's part of each parameter, as long as that is.

    Passes with a gradient gather each module's parameters in turn, in all processes alike. Within
    `gathered` the network is whole, for passes without: as many as each process likes.
    """

    _is_whole = False

    def _held(self) -> nn.Module:
        network = self._network = self._model.network
        names = {id(p): name for name, p in network.named_parameters()}
        state = network.state_dict(keep_vars=True)
        self._places = {key: names.get(id(value), value) for key, value in state.items()}
        self._shapes = {name: p.shape for name, p in self._parameters.items()}
        self._stack = ExitStack()
        known = {id(p) for p in network.parameters()}
        rest = [p for p in self._parameters.values() if id(p) not in known]
        critic = [self._model.critic] if rest else []
        return nn.ModuleList([network, *critic])

    def _cut(self) -> dict[str, Piece]:
        """Equal parts, of which the last may be shorter, or nothing."""
        found = {}
        for name, parameter in self._parameters.items():
            kept: Any = parameter
            group, begin, size = self._zero.grad_position[self._zero.get_param_id(parameter)]
            first = min(dist.get_rank() * size, kept.ds_numel)
            flat = self._zero.fp32_partitioned_groups_flat[group]
            found[name] = Piece(flat, begin, first, min(size, kept.ds_numel - first))
        return found

    def _divide(self) -> None:
        windows = {name: self._seen(name, p) for name, p in self._parameters.items()}
        for group in self._optimizer.param_groups:
            group["params"] = [windows[self._names[id(p)]] for p in group["params"]]
        self._names = {id(window): name for name, window in windows.items()}
        self._model.weights.divide(windows, self)

    def _seen(self, name: str, parameter: Any) -> nn.Parameter:
        return nn.Parameter(parameter.ds_tensor.data[: self._pieces[name].count])

    def forget(self) -> None:
        """Clear the gradients of the update under way: a step that can't be made does that."""
        import deepspeed

        least = self._parameters[min(self._shapes, key=lambda name: self._shapes[name].numel())]
        with deepspeed.zero.GatheredParameters([least]):
            self.backward(self._spoilt(least))
        self._engine.step()

    @property
    def holders(self) -> int:
        """Parameters are divided as moments are."""
        return self.processes

    @contextmanager
    def gathered(self, anew: bool = False) -> Iterator[None]:
        """The network whole; once more where it is already, `anew` after its values changed."""
        was = self._is_whole
        if not was:
            self._gather()
        elif anew:
            self.regather()
        try:
            yield
        finally:
            if not was:
                self._scatter()

    def _gather(self) -> None:
        from deepspeed.runtime.zero.stage3 import unwrap_model_for_generation

        self._engine.empty_partition_cache()  # what was gathered before may have changed since
        self._stack.enter_context(unwrap_model_for_generation(self._engine))
        self._is_whole = True

    def _scatter(self) -> None:
        self._stack.close()
        self._is_whole = False

    def regather(self) -> None:
        """Where the network is whole, have it so with the values that there are now."""
        if self._is_whole:
            first, *_ = every = list(self._engine.parameters())
            first.partition(param_list=every)
            first.all_gather(param_list=every)

    def whole(self, name: str, part: Tensor) -> Tensor:
        """A parameter of which each process has its part, on the CPU."""
        return self.whole_moment(name, part)

    def part(self, name: str, whole: Tensor) -> Tensor:
        """This process's part of a parameter."""
        return self.part_moment(name, whole)

    def _shape(self, name: str) -> Any:
        return self._shapes[name]

    @contextmanager
    def standing_in(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """Within this the network says that its parameters are these: for what saves it."""
        kept = {k: values[v] if isinstance(v, str) else v for k, v in self._places.items()}
        self._network.state_dict = lambda *_, **__: dict(kept)
        try:
            yield
        finally:
            del self._network.state_dict
