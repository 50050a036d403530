"""Adapter for Chroma, at any resolution."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.models.transformers.transformer_chroma import ChromaSingleTransformerBlock
from torch import Tensor, nn

from rlfactory.model.flow_model import FlowModel
from rlfactory.model.flux import Flux
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.utils.types import PositiveInt


class Chroma(Flux):
    """A `ChromaPipeline`; its transformer is trained, the rest frozen.

    Latents and positions are those of `Flux`; the text is T5's alone. The pipeline adds its mask of
    the padding to the attention's logits, as 1 and 0, and so does this.
    """

    pipeline = "ChromaPipeline"
    absent = ("embedded_guidance",)
    encoded = ("sequence", "", "mask")
    outside_comfyui = ("distilled_guidance_layer",)

    def __init__(self, *given: Any, text_tokens: PositiveInt = 512, **options: Any) -> None:
        super().__init__(*given, text_tokens=text_tokens, embedded_guidance=None, **options)

    def check_options(self) -> None:
        """Its network has no guidance as an input."""

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        image = x.new_ones(len(x), x[0, 0].numel() // 4)  # whose tokens are no padding
        mask: Any = _Products.of(torch.cat([text["mask"].to(x.dtype), image], 1))
        with _masked_when_checkpointed(self.network, mask):
            return super()._predict(x, t, {**text, "mask": mask})

    def _own_inputs(self, guidance: Tensor | None, text: TextEmbeddings) -> dict[str, Any]:
        return {"attention_mask": text["mask"]}

    def pipeline_arguments(self) -> dict[str, object]:
        """`guidance_scale` is classifier-free guidance here."""
        return FlowModel.pipeline_arguments(self)


@dataclass(frozen=True)
class _Products:
    """A mask `[B, S]` of which each block makes the products `[B, 1, S, S]` by
    `mask[:, None, None, :] * mask[:, None, :, None]`: here they are the same tensor in all.

    Attention keeps its mask for the backward pass: a tensor for each block would be gigabytes.
    """

    products: Tensor

    @classmethod
    def of(cls, mask: Tensor) -> "_Products":
        """The bias of a mask, in the dtype in which attention computes."""
        kind = mask.device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            mask = mask.to(torch.get_autocast_dtype(kind))
        return cls(mask[:, None, None, :] * mask[:, None, :, None])

    def __getitem__(self, place: object) -> "_Products":
        return self

    def __mul__(self, other: object) -> Tensor:
        return self.products


@contextmanager
def _masked_when_checkpointed(network: Any, mask: _Products) -> Iterator[None]:
    """Single blocks get the mask with gradient checkpointing too; diffusers leaves it out there."""
    own = network._gradient_checkpointing_func

    def checkpointed(block: nn.Module, *given: Any) -> Any:
        lacks = isinstance(block, ChromaSingleTransformerBlock) and len(given) < 4
        return own(block, *given, mask) if lacks else own(block, *given)

    network._gradient_checkpointing_func = checkpointed
    try:
        yield
    finally:
        network._gradient_checkpointing_func = own
