"""Adapter for Stable Diffusion 3 and 3.5, at any resolution: the example for new adapters."""

from torch import Tensor

from rlfactory.model.base import Resolution
from rlfactory.model.flow_model import FlowModel
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.pipelines.guidance import network_times
from rlfactory.model.pipelines.noise_levels import flow_resolution
from rlfactory.utils.errors import ModelError


class SD3(FlowModel):
    """A `StableDiffusion3Pipeline`; its transformer is trained, the rest frozen."""

    pipeline = "StableDiffusion3Pipeline"
    attention_backends = False

    def resolution_of(self, size: int) -> Resolution:
        """Any multiple of a patch, up to the network's positional embeddings."""
        config = self.network.config
        unit = self.pipe.vae_scale_factor * config.patch_size
        largest = unit * config.pos_embed_max_size
        if size % unit or size > largest:
            raise ModelError(f"size={size}: {unit}, {2 * unit}, ... {largest} are possible")
        edge = size // int(self.pipe.vae_scale_factor)
        shape = (config.in_channels, edge, edge)
        return flow_resolution(shape, (size // unit) ** 2, self.pipe.scheduler)

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        sequence, _, pooled, _ = self.pipe.encode_prompt(
            prompts,
            None,
            None,
            device=self.device,
            do_classifier_free_guidance=False,
            max_sequence_length=self.text_tokens,
        )
        return {"sequence": sequence, "pooled": pooled}

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        velocity: Tensor = self.network(
            hidden_states=x,
            timestep=network_times(t, self.timesteps),
            encoder_hidden_states=text["sequence"],
            pooled_projections=text["pooled"],
            return_dict=False,
        )[0]
        return velocity
