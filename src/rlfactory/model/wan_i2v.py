"""Adapter for Wan image to video, 2.1 with an image encoder and 2.2 with two transformers."""

import torch
from diffusers.pipelines.wan import pipeline_wan, pipeline_wan_i2v
from PIL import Image
from torch import Tensor

from rlfactory.model.pipelines.embedding_cache import TextEmbeddings
from rlfactory.model.wan22 import Wan22
from rlfactory.prompts.ops.pictured import PicturedText
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import Size

# the pipeline of images calls ftfy where it is not installed too; that of texts looks first
pipeline_wan_i2v.prompt_clean = pipeline_wan.prompt_clean


class WanI2V(Wan22):
    """A `WanImageToVideoPipeline`: each prompt has a picture, the first frame of its videos.

    The picture, resized to `size` and followed by grey frames, is encoded once by the autoencoder;
    its latents are further channels of the network's input, behind those that say which frame is
    given. Wan 2.1 also reads the picture's CLIP tokens. Of one transformer, `trained` is `both`.
    ModelError where it lacks its image encoder, or has a time for each token (Wan 2.2 TI2V).
    """

    pipeline = "WanImageToVideoPipeline"
    pictures = True
    picture_tokens = False

    def check_options(self) -> None:
        """One transformer, or two and the noise between them; and what reads pictures."""
        config, image_dim = self.pipe.config, self.pipe.transformer.config.image_dim
        if config.expand_timesteps:
            raise ModelError(
                f"model.path={self.path} has a time for each token (Wan 2.2 TI2V): it makes videos"
                f" of texts here; type model=wan model.path={self.path}"
            )
        if image_dim is not None and self.pipe.image_encoder is None:
            raise ModelError(f"model.path={self.path} lacks its image_encoder")
        if image_dim is not None and self.text_tokens != 512:
            raise ModelError(
                f"model.text_tokens={self.text_tokens}: a network with an image encoder takes what"
                " is beyond 512 tokens for the picture's; type model.text_tokens=512"
            )
        if config.boundary_ratio is not None or self.pipe.transformer_2 is not None:
            super().check_options()
        elif self.trained != "both":
            raise ModelError(f"model.trained={self.trained}: {self.path} has one transformer")
        elif self.guidance_low is not None:
            raise ModelError(f"model.guidance_low={self.guidance_low}: {self.path} has one")
        if image_dim is not None:
            self.adapted = [*self.adapted, "attn2.add_k_proj", "attn2.add_v_proj"]

    def embedding_options(self, size: Size) -> dict[str, object]:
        """Also the frames, which follow the picture."""
        return super().embedding_options(size) | {"frames": self.frames}

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        text = super()._encode([str(prompt) for prompt in prompts])
        pictures = [prompt.open() for prompt in prompts if isinstance(prompt, PicturedText)]
        if not pictures:  # the negative prompt
            return text
        found = {"picture": torch.cat([self._first_frame(one) for one in pictures])}
        if self.pipe.image_encoder is not None:
            found["seen"] = self.pipe.encode_image(pictures, self.device)
        return {**text, **found}

    def _first_frame(self, picture: Image.Image) -> Tensor:
        """Which frame is given, and its latents, `[1, 4 + C, t, h, w]`, as by the pipeline."""
        vae, (times, *edges), (height, width) = self.pipe.vae, self.resolution.shape[1:], self.edges
        pixels = self.pipe.video_processor.preprocess(picture, height=height, width=width)
        video = torch.zeros(1, 3, self.frames, height, width, device=self.device)
        video[:, :, 0] = pixels.to(self.device)
        with self.memory.decoding(vae, self.device):
            latents = self._latents_of(video.transpose(1, 2)).float()
        group = int(self.pipe.vae_scale_factor_temporal)
        given = torch.zeros(1, group, times, *edges, device=self.device)
        given[:, :, 0] = 1
        return torch.cat([given, latents], 1)

    def _inputs(self, x: Tensor, text: TextEmbeddings) -> dict[str, Tensor]:
        channels = torch.cat([x, text["picture"].to(x.dtype)], 1)
        seen = {"encoder_hidden_states_image": text["seen"]} if "seen" in text else {}
        return super()._inputs(channels, text) | seen
