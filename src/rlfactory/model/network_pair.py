"""Two networks as one: that of high noise, and that which takes over at low noise."""

from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.fsdp import FSDPModule


class NetworkPair(nn.Module):
    """Each row goes through the network of its noise, by the pair's one `forward`.

    A row's prediction has the bits that it has in the network alone. Parameters are named as the
    pipeline names the two, `transformer` and `transformer_2`. What diffusers' networks have beside
    `forward`, such as gradient checkpointing, is done to both, or read from the first.

    Args:
        high, low: the networks.
        boundary: the lowest timestep of `high`.
        trained: which of the two are trained, or get adapters.
    """

    def __init__(
        self, high: nn.Module, low: nn.Module, *, boundary: float, trained: tuple[str, ...]
    ) -> None:
        super().__init__()
        self.transformer, self.transformer_2 = high, low
        self.boundary, self.trained = boundary, trained
        self._repeated_blocks = high._repeated_blocks
        self._no_split_modules = high._no_split_modules

    def forward(self, *, timestep: Tensor, **inputs: Any) -> tuple[Tensor]:
        """The predictions `[B, ...]`, of `timestep` `[B]` and tensors of B rows."""
        is_high = self._is_high(timestep)
        both = [[i for i, high in enumerate(is_high) if high == side] for side in (True, False)]
        networks, is_sharded = (self.transformer, self.transformer_2), isinstance(self, FSDPModule)
        if [] in both and not is_sharded:  # of sampling: one time for all rows
            found: tuple[Tensor] = networks[not both[0]](timestep=timestep, **inputs)
            return found
        inputs["timestep"] = timestep
        parts, none = [], torch.zeros((), device=timestep.device)
        for network, rows in zip(networks, both, strict=True):
            # a rank without rows of a network runs it all the same, for the others to gather it
            own = torch.tensor(rows or [0], device=timestep.device)
            given = {k: v[own] if isinstance(v, Tensor) else v for k, v in inputs.items()}
            (prediction,) = network(**given)
            if rows:
                parts.append(prediction)
            else:
                none = 0 * prediction.sum()
        order = torch.tensor(both[0] + both[1], device=timestep.device).argsort()
        return (torch.cat(parts)[order] + none,)

    def _is_high(self, timestep: Tensor) -> list[bool]:
        """Of each row; of tensors without values, as an estimate has, one network is as another."""
        if timestep.is_meta or isinstance(timestep, FakeTensor):
            return [True] * len(timestep)
        # how many rows a network gets is a size of its inputs: the host waits for the device here
        high: list[bool] = (timestep >= self.boundary).tolist()
        return high

    @property
    def config(self) -> Any:
        """The first network's; the second has the same architecture."""
        return self.transformer.config

    @property
    def peft_config(self) -> Any:
        """That of the adapters of either."""
        return self.get_submodule(self.trained[0]).peft_config

    @property
    def attn_processors(self) -> dict[str, Any]:
        """The first network's."""
        found: dict[str, Any] = self._named("transformer").attn_processors
        return found

    def add_adapter(self, config: Any) -> None:
        """Adapters for the networks that are trained."""
        for name in self.trained:
            self._named(name).add_adapter(config)

    def enable_gradient_checkpointing(self) -> None:
        """In both: gradient passes through the one that a row is in."""
        for name in ("transformer", "transformer_2"):
            self._named(name).enable_gradient_checkpointing()

    def set_attention_backend(self, backend: str) -> None:
        """In both."""
        for name in ("transformer", "transformer_2"):
            self._named(name).set_attention_backend(backend)

    def _named(self, name: str) -> Any:
        return getattr(self, name)
