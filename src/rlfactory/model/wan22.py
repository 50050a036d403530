"""Adapter for Wan 2.2 A14B, and its two transformers, of high and of low noise, as one network."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.fsdp import FSDPModule

from rlfactory.model.base import with_prefix, with_values
from rlfactory.model.lora import merge_adapters
from rlfactory.model.wan import Wan
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import Faults, NonNegative


class NetworkPair(nn.Module):
    """Each row goes through the network of its noise, by the pair's one `forward`: from the
    timestep `boundary` on through `high`, below through `low`; `trained` are those that are, or get
    adapters.

    A row's prediction has the bits that it has in the network alone. Parameters are named as the
    pipeline names the two, `transformer` and `transformer_2`. What diffusers' networks have beside
    `forward`, such as gradient checkpointing, is done to both, or read from the first.
    """

    def __init__(self, high: Any, low: Any, *, boundary: float, trained: tuple[str, ...]) -> None:
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
            only = ("transformer", "transformer_2")[not both[0]]
            if only in self.trained or not torch.is_grad_enabled():
                return self.get_submodule(only)(timestep=timestep, **inputs)
        inputs["timestep"] = timestep
        parts, none = [], torch.zeros((), device=timestep.device)
        for network, rows in zip(networks, both, strict=True):
            # a network without rows is run all the same: for other ranks to gather it, and so that
            # rows of the frozen network alone have a gradient, of zeros
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
        """Whether each row is the noisier network's; without values, as in estimates, any is."""
        if timestep.is_meta or isinstance(timestep, FakeTensor):
            return [True] * len(timestep)
        # how many rows a network gets is a size of its inputs: the host waits for the device here
        return (timestep >= self.boundary).tolist()

    @property
    def config(self) -> Any:
        """The first network's; the second has the same architecture."""
        return self.transformer.config

    @property
    def peft_config(self) -> Any:
        """The configuration of the adapters of either."""
        return self.get_submodule(self.trained[0]).peft_config

    @property
    def attn_processors(self) -> dict[str, Any]:
        """The first network's."""
        return self.transformer.attn_processors

    def add_adapter(self, config: Any) -> None:
        """Adapters for the networks that are trained."""
        for name in self.trained:
            getattr(self, name).add_adapter(config)

    def enable_gradient_checkpointing(self) -> None:
        """In both: gradient passes through the one that a row is in."""
        self.transformer.enable_gradient_checkpointing()
        self.transformer_2.enable_gradient_checkpointing()

    def set_attention_backend(self, backend: str) -> None:
        """In both."""
        self.transformer.set_attention_backend(backend)
        self.transformer_2.set_attention_backend(backend)


class Wan22(Wan):
    """A `WanPipeline` of two transformers; both, or one of them, are trained, the rest frozen.

    Times from the pipeline's `boundary_ratio` on go through `transformer`, lower ones through
    `transformer_2`, whose guidance may be another. ModelError where it has one of the two only.
    """

    second_part = "transformer_2"

    def __init__(
        self,
        *given: Any,
        trained: Literal["both", "high", "low"] = "both",
        guidance_low: NonNegative | None = None,
        **options: Any,
    ) -> None:
        """
        Args:
            trained: both | high | low: the networks that are trained, by their noise. Steps of
                the other give no gradient: `window.low`, `window.high` leave them out.
            guidance_low: Guidance at low noise, where that at high noise is above 1, as in the
                pipeline; null: as at high noise.
        """
        self.trained, self.guidance_low = trained, guidance_low
        super().__init__(*given, **options)

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """An evaluation has the size of pictures that are channels beside the sample's."""
        size = run["evaluation"]["size"]
        if options["pictures"] and size not in (None, options["size"]):
            message = f"is {size}; videos that begin with a picture have model.size"
            yield "evaluation.size", message, "evaluation.size=null"

    @property
    def trained_parts(self) -> tuple[str, ...]:
        parts = {"high": (self.part,), "low": (self.second_part,)}
        return parts.get(self.trained, (self.part, self.second_part))

    def check_options(self) -> None:
        """Both transformers, and the noise between them."""
        there = [n for n in (self.part, self.second_part) if getattr(self.pipe, n) is not None]
        if self.pipe.config.boundary_ratio is None or len(there) < 2:
            raise ModelError(
                f"model.path={self.path} has {' and '.join(there)}"
                f" with boundary_ratio={self.pipe.config.boundary_ratio}; allowed are two networks"
                " and the noise between them, or model=wan with a model of one"
            )

    @cached_property
    def network(self) -> Any:
        """The two as one; where the pipeline has one, that."""
        if getattr(self.pipe, self.second_part) is None:
            return getattr(self.pipe, self.part)
        steps = self.pipe.scheduler.config.num_train_timesteps
        return NetworkPair(
            self.pipe.transformer,
            self.pipe.transformer_2,
            boundary=self.pipe.config.boundary_ratio * steps,
            trained=self.trained_parts,
        )

    def _combine(self, negative: Tensor, positive: Tensor, t: Tensor) -> Tensor:
        """Each row by the guidance of its network."""
        if self.guidance_low is None or not isinstance(self.network, NetworkPair):
            return super()._combine(negative, positive, t)
        is_high = self._times(t) >= self.network.boundary
        guidance = torch.where(is_high, self.guidance, self.guidance_low)
        return negative + guidance.view(-1, *[1] * (positive.ndim - 1)) * (positive - negative)

    def export(self, folder: Path, values: Mapping[str, Tensor] | None = None) -> None:
        """LoRA: one file for diffusers, whose names begin with the network's, and a subfolder for
        PEFT for each. Full: a subfolder of each network that was trained.
        """
        if not isinstance(self.network, NetworkPair):
            super().export(folder, values)
            return
        if self.lora is None:
            for name, network in self.trained_networks.items():
                own = with_values(network, with_prefix(values, f"{name}."))
                own.save_pretrained(folder / name, safe_serialization=True)
            return
        state, metadata = self.lora.state_dict(values), self.lora.metadata()
        layers = {name: with_prefix(state, f"{name}.") for name in self.trained_parts}
        self.pipe._save_lora_weights(
            folder, lora_layers=layers, lora_metadata=dict.fromkeys(layers, metadata)
        )
        for name in layers:
            (folder / name).mkdir()
            self.lora.save_for_peft(folder / name, values, f"{name}.")

    def export_merged(self, folder: Path) -> None:
        if self.lora is not None:
            for network in self.trained_networks.values():
                merge_adapters(network)
            self.lora = None
        super().export_merged(folder)

    def pipeline_arguments(self) -> dict[str, object]:
        """Also `guidance_scale_2`, of a pipeline of two networks."""
        own = {} if self.guidance_low is None else {"guidance_scale_2": self.guidance_low}
        return super().pipeline_arguments() | own
