"""Adapter for Stable Diffusion 3 and 3.5, at any resolution: the example for new adapters."""

from torch import Tensor

from rlfactory.model.flow_model import FlowModel
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings


class SD3(FlowModel):
    """A `StableDiffusion3Pipeline`; its transformer is trained, the rest frozen."""

    pipeline = "StableDiffusion3Pipeline"
    attention_backends = False
    clip_tokens = 77
    encoded = ("sequence", "", "pooled")

    @property
    def patch(self) -> int:
        return int(self.network.config.patch_size)

    @property
    def most_tokens(self) -> int:
        return int(self.network.config.pos_embed_max_size)

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        return self.network(
            hidden_states=x,
            timestep=self._times(t),
            encoder_hidden_states=text["sequence"],
            pooled_projections=text["pooled"],
            return_dict=False,
        )[0]
