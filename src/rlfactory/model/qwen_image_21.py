"""Adapter for Qwen-Image 2.1, at any resolution."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rlfactory.model.base import Resolution
from rlfactory.model.flow_model import FlowModel
from rlfactory.model.lora import SINGLE_PROJECTIONS
from rlfactory.model.pipelines.embedding_cache import LENGTHS, TextEmbeddings
from rlfactory.model.pipelines.latents import Normalised
from rlfactory.model.pipelines.noise_levels import flow_resolution, units_of
from rlfactory.utils.errors import ModelError
from rlfactory.utils.pytree import to_device
from rlfactory.utils.types import Size


class QwenImage21(FlowModel):
    """A `QwenImage21Pipeline`, from text alone; its transformer is trained, the rest frozen.

    Latents `[B, 64, h, w]` are not packed. A prompt is a causal prefix of the image's tokens, whose
    positions begin where the prompt ends: each row has its own, as in a pipeline that is called
    with one prompt. Images have an alpha channel, and are laid on white.
    """

    pipeline = "QwenImage21Pipeline"
    latents = Normalised()
    adapted = SINGLE_PROJECTIONS
    attention_backends = False  # its processor chooses none where the prompt is read too

    def check_options(self) -> None:
        """The noise levels are the scheduler's."""
        if self.pipe.config.sample_sigmas:
            raise ModelError(
                f"model.path={self.path} is sampled at noise levels of its own (sample_sigmas),"
                " which no schedule here follows; type model.path=Qwen/Qwen-Image-2.1, from which"
                " it was distilled"
            )

    def resolution_of(self, size: Size) -> Resolution:
        """Any with an even number of latents a side; each latent is a token."""
        rows, columns = (2 * units for units in units_of(size, 2 * self.latent_pixels))
        shape = (self.latent_channels, rows, columns)
        return flow_resolution(shape, rows * columns, self.pipe.scheduler)

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        sequence, mask, _ = self.pipe.encode_prompt(prompts, device=self.device)
        rows, length, _ = sequence.shape
        lengths = torch.full((rows,), length) if mask is None else mask.sum(1).cpu()
        # the pipeline has no limit; the encoder is causal, so what is kept is not changed
        padded = F.pad(sequence, (0, 0, 0, self.text_tokens - length))
        return {"sequence": padded, LENGTHS: lengths.clamp(max=self.text_tokens)}

    def _tokens_read(self) -> int:
        return int(self.text_tokens + self.pipe._drop_idx)

    def _written(self, prompt: str) -> str:
        return str(self.pipe.prompt_template_t2i).format(prompt or " ")

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        lengths = text[LENGTHS]
        counts = lengths.tolist()  # on the CPU
        longest = max(counts)
        tokens, valid = x.flatten(2).transpose(1, 2), None
        if min(counts) < longest:
            ends = to_device(lengths, x.device)[:, None]
            places = torch.arange(longest + tokens.shape[1], device=x.device)
            valid = (places < ends) | (places >= longest)
        # of each row, `[B, S, 1, D / 2]`, for attention that makes this of `[S, D / 2]` of all
        rotations = self._rotations(lengths, longest, x)
        per_row = SimpleNamespace(unsqueeze=lambda dim: rotations)
        with _joint_forward(self.network):
            velocity: Tensor = self.network(
                text["sequence"][:, :longest],
                tokens,
                self._times(t) / 1000,
                per_row,
                valid,
            )
        return velocity.transpose(1, 2).reshape(x.shape)

    def _rotations(self, lengths: Tensor, longest: int, x: Tensor) -> Tensor:
        """Rotations of queries and keys, `[B, L + h w, 1, D / 2]`: text has one position in all
        three axes, the image that of the prompt's end in the first, and its own around 0 in the
        others.
        """
        rope, (h, w) = self.network.pos_embed, x.shape[-2:]

        def turned(*places: Tensor) -> Tensor:
            # on the CPU, whose powers are those of the pipeline's tables
            axes = zip(places, rope.axes_dim[-len(places) :], strict=True)
            turns = [rope.rope_params(place, dim, rope.theta) for place, dim in axes]
            return to_device(torch.cat(turns, -1), x.device)

        def grid() -> Tensor:
            own = [torch.arange(edge) - (edge - edge // 2) for edge in (h, w)]
            return turned(*(axis.flatten() for axis in torch.meshgrid(*own, indexing="ij")))

        steps = torch.arange(longest)
        prompt = self.kept((longest, x.device), lambda: turned(steps, steps, steps))
        image, batch = self.kept((h, w, x.device), grid), len(lengths)
        begins = to_device(rope.rope_params(lengths, rope.axes_dim[0], rope.theta), x.device)
        frames = begins[:, None].expand(-1, len(image), -1)
        of_images = torch.cat([frames, image.expand(batch, -1, -1)], -1)
        return torch.cat([prompt.expand(batch, -1, -1), of_images], 1)[:, :, None]

    def _decode(self, latents: Tensor) -> Tensor:
        pixels = super()._decode(latents)
        colours, alpha = pixels[:, :3], (pixels[:, 3:] + 1) / 2
        return colours * alpha + (1 - alpha)

    def _latents_of(self, pixels: Tensor) -> Tensor:
        opaque = F.pad(pixels, (0, 0, 0, 0, 0, 1), value=1.0)
        return super()._latents_of(opaque)

    def pipeline_arguments(self) -> dict[str, object]:
        """`true_cfg_scale` is the guidance; without a negative prompt the pipeline has none."""
        arguments: dict[str, object] = {"true_cfg_scale": self.guidance}
        if self.guidance > 1:
            arguments["negative_prompt"] = self.negative_prompt
        return arguments


@contextmanager
def _joint_forward(network: Any) -> Iterator[None]:
    """The network is called by `_forward` within the `with`, with all of its hooks.

    Its own forward pass has one layout for all rows, and waits for the device to read it.
    """
    network.forward = MethodType(_forward, network)
    try:
        yield
    finally:
        del network.forward


def _forward(
    network: Any,
    sequence: Tensor,
    tokens: Tensor,
    times: Tensor,
    rotations: SimpleNamespace,
    valid: Tensor | None,
) -> Tensor:
    """The velocity of an image's tokens, `[B, N, C]`, behind prompts `[B, L, D]`, at times `[B]` in
    [0, 1]. `valid` `[B, L + N]` marks tokens that are no padding; None: all.
    """
    prompt, image = network.txt_in(sequence), network.img_in(tokens)
    hidden, length = torch.cat([prompt, image], 1), prompt.shape[1]
    is_image = None
    if network.config.causal_condition:  # the prompt is read at time 0
        times = torch.cat([times, times.new_zeros(1)])
        is_image = torch.arange(hidden.shape[1], device=hidden.device) >= length
    embedded = network.time_text_embed(times, hidden)
    modulation = network.modulation(embedded)
    again = torch.is_grad_enabled() and network.gradient_checkpointing
    for block in network.transformer_blocks:
        layout = (rotations, None, is_image, None, None, None, [(0, length, True)], valid)
        if again:
            hidden = network._gradient_checkpointing_func(block, hidden, modulation, *layout)
        else:
            hidden = block(hidden, modulation, *layout)
    of_image = None if is_image is None else is_image[length:]
    shown = network.norm_out(hidden[:, length:], embedded, of_image)
    return network.proj_out(shown)
