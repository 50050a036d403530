"""Adapter for Qwen-Image, at any resolution."""

import torch
from torch import Tensor
from torch.nn import functional as F

from rlfactory.model.flow_model import FlowModel
from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.pipelines.latents import Normalised
from rlfactory.model.precision import exact_inputs


class QwenImage(FlowModel):
    """A `QwenImagePipeline`; its transformer is trained, the rest frozen.

    Latents are `[B, 16, h, w]`; only for the transformer they are packed, each 2 x 2 patch into a
    token. Prompts are padded to `text_tokens`, with a mask, so that a sample does not depend on
    the others in its batch. Guidance keeps the length of each token's conditional velocity.
    """

    pipeline = "QwenImagePipeline"
    packed = True
    latents = Normalised()

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        sequence, mask = self.pipe.encode_prompt(
            prompts, device=self.device, max_sequence_length=self.text_tokens
        )
        return self._padded(sequence, mask)

    def _padded(self, sequence: Tensor, mask: Tensor | None) -> TextEmbeddings:
        rows, length, _ = sequence.shape
        mask = sequence.new_ones(rows, length) if mask is None else mask
        missing = self.text_tokens - length
        return {
            "sequence": F.pad(sequence, (0, 0, 0, missing)),
            "mask": F.pad(mask.bool(), (0, missing)),
        }

    def _tokens_read(self) -> int:
        return int(self.text_tokens + self.pipe.prompt_template_encode_start_idx)

    def _written(self, prompt: str) -> str:
        return str(self.pipe.prompt_template_encode).format(prompt)

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        h, w = x.shape[-2:]
        images = [x, *self._pictures(text)]
        packed = [self.pipe._pack_latents(image, *image.shape) for image in images]
        shapes = [(1, image.shape[-2] // 2, image.shape[-1] // 2) for image in images]
        times = self._times(t) / 1000  # the transformer multiplies by 1000 itself
        # some read pictures at time 0
        exact = torch.cat([times, 0 * times]) if self.network.config.zero_cond_t else times
        with exact_inputs(self.network.time_text_embed, exact):
            velocity = self.network(
                hidden_states=torch.cat(packed, 1),
                timestep=times,
                encoder_hidden_states=text["sequence"],
                encoder_hidden_states_mask=text["mask"],
                img_shapes=[shapes] * len(x),
                return_dict=False,
            )[0][:, : h * w // 4]
        scale = self.pipe.vae_scale_factor
        unpacked: Tensor = self.pipe._unpack_latents(velocity, h * scale, w * scale, scale)
        return unpacked[:, :, 0]

    def _pictures(self, text: TextEmbeddings) -> list[Tensor]:
        """Latents `[B, C, h, w]` that the network reads behind the sample's."""
        return []

    def _combine(self, negative: Tensor, positive: Tensor, t: Tensor) -> Tensor:
        guided = super()._combine(negative, positive, t)
        return guided * (_token_norms(positive) / _token_norms(guided))

    def pipeline_arguments(self) -> dict[str, object]:
        """`true_cfg_scale` is the guidance; without a negative prompt the pipeline has none."""
        arguments: dict[str, object] = {"max_sequence_length": self.text_tokens}
        arguments["true_cfg_scale"] = self.guidance
        if self.guidance > 1:
            arguments["negative_prompt"] = self.negative_prompt
        return arguments


def _token_norms(x: Tensor) -> Tensor:
    """The norm of each token, the 2 x 2 patches of all channels, at its latents `[B, 1, h, w]`."""
    squares = x.square().sum(1, keepdim=True)
    pooled = 4 * F.avg_pool2d(squares, 2)
    return F.interpolate(pooled, scale_factor=2.0, mode="nearest").sqrt()
