"""Adapter for Wan 2.2 A14B, with a transformer for high and one for low noise."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.model.base import with_prefix, with_values
from rlfactory.model.lora import merge_adapters
from rlfactory.model.network_pair import NetworkPair
from rlfactory.model.wan import Wan
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import Faults, NonNegative


class Wan22(Wan):
    """A `WanPipeline` of two transformers; both, or one of them, are trained, the rest frozen.

    Times from the pipeline's `boundary_ratio` on go through `transformer`, lower ones through
    `transformer_2`, whose guidance may be another.

    Raises:
        ModelError: as `Wan`, or the pipeline has one of the two networks only.
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
            trained: both | high | low: the networks that are trained, by their noise.
            guidance_low: Guidance at low noise; null: as at high noise.
        """
        self.trained, self.guidance_low = trained, guidance_low
        super().__init__(*given, **options)

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """Guidance at low noise needs some at high noise, as in the pipeline; and an evaluation
        has the size of pictures that are channels beside the sample's.
        """
        if (options["guidance_low"] or 0) > 1 >= options["guidance"]:
            message = "is above 1, and the pipeline has guidance only where model.guidance is too"
            yield "guidance_low", message, "model.guidance_low=null"
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
