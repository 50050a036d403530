"""Adapters for FLUX.3 klein, base and distilled, at any resolution."""

from collections.abc import Mapping
from typing import Any

import torch
from diffusers.modular_pipelines.flux3.before_denoise import _prepare_image_ids
from diffusers.modular_pipelines.flux3.encoders import Flux3TextEncoderStep
from torch import Tensor
from torch.nn import functional as F

from rlfactory.dynamics.schedule import shifted
from rlfactory.model.flow_model import FlowModel
from rlfactory.model.lora import SINGLE_PROJECTIONS
from rlfactory.model.pipelines.embedding_cache import LENGTHS, TextEmbeddings
from rlfactory.model.pipelines.latents import Patches
from rlfactory.model.pipelines.text_encoders import user_message
from rlfactory.utils.types import Faults, NonNegative, PositiveInt

WINDOW = 80
"""Tokens of text in steps of which the network was trained."""


class Flux3Klein(FlowModel):
    """A `Flux3ModularPipeline`; its transformer is trained, the rest frozen.

    Latents are what the network sees, `[B, 128, h, w]`: patches of 2 x 2 latents of the
    autoencoder, normalised by the statistics that it holds. The network has no mask and reads the
    padding of a prompt, up to a multiple of 80 tokens: prompts of one such window go through it
    together, and those of several in several passes. Prompts are encoded as they are given.
    """

    pipeline = "Flux3ModularPipeline"
    outside_comfyui = ("",)
    latents = Patches()
    patch = 1
    adapted = SINGLE_PROJECTIONS

    def __init__(
        self,
        *given: Any,
        text_tokens: PositiveInt = 160,
        guidance: NonNegative = 3.5,
        **options: Any,
    ) -> None:
        """
        Args:
            text_tokens: The most tokens of a prompt, with its template; longer ones are cut.
            guidance: Classifier-free guidance; 1: none.
        """
        super().__init__(*given, text_tokens=text_tokens, guidance=guidance, **options)

    @property
    def latent_pixels(self) -> int:
        """Those of two of the autoencoder's latents."""
        return 2 * super().latent_pixels

    def _encode(self, prompts: list[str]) -> TextEmbeddings:
        rows = [
            Flux3TextEncoderStep._get_qwen3_vl_prompt_embeds(
                self.pipe.text_encoder,
                self.pipe.tokenizer,
                prompt,
                device=self.device,
                max_sequence_length=self.text_tokens,
                pad_multiple=WINDOW,
            )
            for prompt in prompts
        ]
        padded = [F.pad(row, (0, 0, 0, self.text_tokens - row.shape[1])) for row in rows]
        lengths = torch.tensor([row.shape[1] for row in rows])
        return {"sequence": torch.cat(padded), LENGTHS: lengths}

    def _written(self, prompt: str) -> str:
        return user_message(self.pipe.tokenizer, prompt)

    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        # fake tensors, which an estimate predicts with, have no data and say 0
        lengths = [length or self.text_tokens for length in text[LENGTHS].tolist()]
        windows = sorted({*lengths})
        if self.weights.sharding is not None:  # each process must make as many passes
            windows = [*range(WINDOW, self.text_tokens, WINDOW), self.text_tokens]
        velocity = torch.zeros_like(x)
        for window in windows:
            own = [row for row, length in enumerate(lengths) if length == window]
            rows = torch.tensor(own or [0], device=x.device)
            found = self._of_window(x[rows], t[rows], text["sequence"][rows, :window]).float()
            # a pass for the other processes' sake adds nothing, and has a backward pass as theirs
            velocity = velocity.index_add(0, rows, found if own else 0 * found)
        return velocity

    def _of_window(self, x: Tensor, t: Tensor, sequence: Tensor) -> Tensor:
        """The velocity for prompts of one length."""
        image_ids, text_ids = self._positions(x, sequence)
        velocity: Tensor = self.network(
            hidden_states=x.flatten(2).transpose(1, 2),  # float32, in which times are embedded
            encoder_hidden_states=sequence,
            img_ids=image_ids,
            txt_ids=text_ids,
            return_dict=False,
            **self._network_times(t),
        )[0]
        return velocity.transpose(1, 2).reshape(x.shape)

    def _network_times(self, t: Tensor) -> Mapping[str, Tensor]:
        """The times that the network is called with, `[B]` in [0, 1]."""
        return {"timestep": self._times(t) / 1000}

    def _positions(self, x: Tensor, sequence: Tensor) -> tuple[Tensor, Tensor]:
        """The positions of image and text tokens, `[n, 4]`; copied to the device once."""

        def make() -> tuple[Tensor, Tensor]:
            image = _prepare_image_ids(*x.shape[-2:], image_rope_scale=0.5)
            text = F.pad(torch.arange(sequence.shape[1]).float()[:, None], (3, 0))
            return image.to(x.device), text.to(x.device)

        return self.kept((*x.shape[-2:], sequence.shape[1], x.device), make)


class Flux3KleinDistilled(Flux3Klein):
    """A `Flux3DistilledModularPipeline`: a flow map, whose network is told the time that a step
    goes to: the next one of its own schedule of `map_steps`, also where a time lies between two.
    """

    pipeline = "Flux3DistilledModularPipeline"

    def __init__(
        self,
        *given: Any,
        guidance: NonNegative = 1.0,
        map_steps: PositiveInt = 16,
        **options: Any,
    ) -> None:
        """
        Args:
            guidance: 1: none.
            map_steps: The steps of the pipeline's schedule, of which the network is told the next.
        """
        self.map_steps = map_steps
        super().__init__(*given, guidance=guidance, **options)

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """Samples take the steps that the network is told, without guidance."""
        if options["guidance"] > 1:
            message = (
                f"is {options['guidance']:g}: this model was distilled to sample without guidance"
            )
            yield "guidance", message, "model.guidance=1"
        steps, schedule = options["map_steps"], run["schedule"]
        asked = {
            "schedule.steps": (schedule.get("steps"), steps),
            "schedule.kind": (schedule.get("kind"), "uniform"),
            "schedule.shift": (schedule.get("shift"), None),
            "evaluation.steps": (run["evaluation"]["steps"] or steps, steps),
        }
        for key, (given, own) in asked.items():
            if given != own:
                value = "null" if own is None else own
                message = (
                    f"is {given}: the network is told the steps of its own schedule, of {value}"
                )
                yield key, message, f"{key}={value}"

    def _network_times(self, t: Tensor) -> Mapping[str, Tensor]:
        shift = self.resolution.shift
        even = shifted(t.double(), 1 / shift) - 1 / self.map_steps
        target = shifted(even.clamp(min=0), shift).to(t.dtype)
        return {**super()._network_times(t), "target_timestep": target}

    def pipeline_arguments(self) -> dict[str, object]:
        """The pipeline has no guidance."""
        return {"max_sequence_length": self.text_tokens}
