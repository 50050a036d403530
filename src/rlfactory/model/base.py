"""The contract of an image model: encode prompts, predict noise or velocity, decode latents.

To train a model that diffusers has a pipeline for, subclass `image_base.PipelineModel`, which
implements most of this; `sd3.py` is the shortest example. Shapes: B samples, latents
`[B, C, h, w]`, images `[B, 3, H, W]`; of a video model `[B, C, t, h, w]` and `[B, F, 3, H, W]`
with F frames.

A constructor's keyword-only parameters are its configuration (`conf/model/NAME.yaml`). Before them
it may name, in any order, these run-time arguments, which `train/build.py` passes by name:

    device: torch.device         where the network computes
    seed: int                    of the run, for initial weights of adapters
    precision: Precision         the group `precision`
    memory: Memory               the group `memory`
    prompt_cache: PromptCache    the key `prompt_cache`, and all prompts of the run
    has_critic: bool             whether the algorithm reads values (models of texts)

Order of calls in a run: constructor; `hardware.prepare` (which may shard `weights`);
`resolution`; `parameter_groups`, for the optimizer; `weights.add` for every set that the
algorithm needs; `prepare`; then in each iteration `encode`, `predict` for each sampling step and
`decode`, without gradient, and `predict` for each micro-batch, with gradient; at checkpoints
`export`.

A static method `validate(options, run)` may check options before a run (`utils.types.Faults`).
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from rlfactory.dynamics.ops.forward_process import ForwardProcess
from rlfactory.model.precision import Precision
from rlfactory.model.weight_sets import WeightSets
from rlfactory.rollout import Condition
from rlfactory.utils.errors import ModelError
from rlfactory.utils.types import Media, Size


@dataclass
class NFECounter:
    """Rows that went through the network, `forward` without and `trained` with gradient.

    Guidance by a second, unconditional pass counts twice. `on_pass` is called before each forward
    pass, also for a model that does not count rows; it may raise, and the pass is then not made.
    Rows are not counted while `is_padding`: another rank's passes need these, and no sample does.
    """

    forward: int = 0
    trained: int = 0
    is_padding: bool = field(default=False, compare=False, repr=False)
    on_pass: Callable[[], None] | None = field(default=None, compare=False, repr=False)

    def begin_pass(self) -> None:
        """Call `on_pass`."""
        if self.on_pass is not None:
            self.on_pass()

    def add(self, rows: int) -> None:
        """Begin a pass over that many rows, and count it."""
        self.begin_pass()
        if self.is_padding:
            return
        if torch.is_grad_enabled():
            self.trained += rows
        else:
            self.forward += rows

    def read_and_reset(self) -> "NFECounter":
        """The counts since the last call; both start again from 0."""
        counted = NFECounter(self.forward, self.trained)
        self.forward = self.trained = 0
        return counted


def evaluation_metrics(sampled: NFECounter, learned: NFECounter, samples: int) -> dict[str, float]:
    """Evaluations per sample: to draw it, to compare policies on it, to learn from it."""
    return {
        "nfe/sample": sampled.forward / samples,
        "nfe/compare": learned.forward / samples,
        "nfe/train": learned.trained / samples,
    }


@dataclass(frozen=True)
class Resolution:
    """Shapes that follow from the size of an image or a video.

    Attributes:
        shape: of a sample's latents, `(C, h, w)`, or `(C, t, h, w)` of a video.
        shift: the timestep shift of the noise schedule at this resolution.
        tokens: the number of image or video tokens; None for a network that is no transformer.
        dynamic: whether the shift depends on the tokens.
        conversions: options of the pipeline's scheduler that change shifted noise levels, such as
            `shift_terminal` (`pipelines/noise_levels.py`).
        step_shift: the shift by the number of steps, where it depends on it too.
    """

    shape: tuple[int, ...]
    shift: float = 1.0
    tokens: int | None = None
    dynamic: bool = False
    conversions: Mapping[str, Any] = field(default_factory=dict)
    step_shift: Callable[[int], float] | None = None

    def shift_of(self, steps: int) -> float:
        """The timestep shift of a sampling run."""
        return self.shift if self.step_shift is None else self.step_shift(steps)


class Model(ABC):
    """The common base of models of images and of texts: what is generated; the trained parameters
    and their weight sets, the device where the network computes, and the `network` that `weights`
    belong to (read by `hardware=fsdp2`).
    """

    media: ClassVar[Media]
    process: ClassVar[Literal["flow", "vp", "tokens"]]

    weights: WeightSets
    device: torch.device

    @cached_property
    def evaluations(self) -> NFECounter:
        """Counts forward passes of the network, which call its `add`.

        Passes of language models are reported and not counted: the cost of a token depends on what
        is cached.
        """
        return NFECounter()

    @cached_property
    def precision(self) -> Precision:
        """The dtype in which the network computes; float32 unless an adapter sets another."""
        return Precision()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Parameter groups of `weights.parameters`, with options that the optimizer has not."""
        return [{"params": list(self.weights.parameters.values())}]

    def frozen(self, path: str) -> Self:
        """The same model with another network, frozen: a teacher. All else is shared.

        Args:
            path: a model of the same family, or adapters of this one's as PEFT saves them, which
                are merged.

        Raises:
            ModelError: it can't be loaded, or does not fit.
        """
        raise ModelError(f"algo.teachers={path}: a {type(self).__name__} loads no second network")

    @abstractmethod
    def export(self, folder: Path, values: Mapping[str, Tensor] | None = None) -> None:
        """Write weights to `folder` so that diffusers, transformers or PEFT loads them.

        With LoRA the adapters, otherwise the trained network.

        Args:
            folder: must exist.
            values: full trained tensors on the CPU, by their names in `weights.parameters`. The
                model is then left alone: another thread may train it. None: the weights in use.
        """

    @abstractmethod
    def export_merged(self, folder: Path) -> None:
        """Write a complete pipeline or network with the weights in use, adapters merged.

        The model can't be trained afterwards.
        """

    def prompt_metrics(self, prompts: Sequence[str]) -> dict[str, float]:
        """Metrics of an iteration's prompts. Nothing by default."""
        return {}


class ImageModel(Model):
    """A diffusion or flow model from text to images or videos.

    Class attributes (literals: they are also read from the source, without importing torch):
        media: what is generated, "images" or "videos".
        pipeline: the name of its diffusers pipeline class; checked against the folder at `path`.
        process: the forward process, "flow" or "vp"; decides which dynamics and schedules fit.
        attention_backends: whether diffusers' attention backends (`memory.attention`) apply.
        outside_comfyui: how names of the network's modules begin that `model_lora_keys_unet` in
            ComfyUI's comfy/lora.py does not know by diffusers' names ("": none is known): it leaves
            out their adapters, with a warning in its log.
        frame_rate: frames per second of a video.
        pictures: whether each prompt has a picture, which the model edits or begins with.
        picture_tokens: whether a picture's latents are tokens of the network beside the sample's,
            not channels.
        second_part: the component that takes over from the trained one at low noise, in a pipeline
            that has two. Its adapter has the option `trained`: both | high | low.
        clip_tokens: tokens of CLIP's that the network reads beside `text_tokens`.
        activations: a file beside the class's, with rows of what its networks' activations take,
            in the form of config/memory/language_models.json; empty for networks that diffusers has
            and this package measured.
        absent: options of ancestors' constructors that the class has not.

    Attributes:
        forward_process: the process itself, for dynamics and losses.
        resolution: of rollouts; an evaluation may have another (`resolution_of`).
        pipe: the diffusers pipeline (read by `rlfactory export`).
    """

    media: ClassVar[Media] = "images"
    pipeline: ClassVar[str]
    attention_backends: ClassVar[bool] = True
    outside_comfyui: ClassVar[tuple[str, ...]] = ()
    frame_rate: int = 16
    pictures: ClassVar[bool] = False
    picture_tokens: ClassVar[bool] = True
    second_part: ClassVar[str] = ""
    clip_tokens: ClassVar[int] = 0
    activations: ClassVar[str] = ""
    absent: ClassVar[tuple[str, ...]] = ()

    forward_process: ForwardProcess
    resolution: Resolution

    @abstractmethod
    def resolution_of(self, size: Size) -> Resolution:
        """The resolution of images or videos.

        Args:
            size: pixels per side of a square, or height and width.

        Raises:
            ModelError: the model can't generate this size.
        """

    @abstractmethod
    def encode(self, prompts: Sequence[str]) -> Condition:
        """Text embeddings, one row for each prompt, on `device`; and its picture's latents, if it
        has a picture (`prompts.ops.pictured.PicturedText`).

        The same prompt must always give the same bits, whatever prompts it comes with: samples are
        replayed, and runs resumed, with embeddings that are computed again.
        """

    def encode_ahead(self, prompts: Sequence[str]) -> None:
        """Encode prompts that `encode` will be asked for next, in several batches.

        A model whose text encoders are offloaded brings them to the device once for all of them.
        Does nothing by default.
        """

    def prepare(self) -> None:
        """Encode the prompts of the run in advance, and free the text encoders.

        Called once, before the first iteration. A prompt outside that list must still be encoded
        on request. Does nothing by default.
        """
        return

    def merged_adapters(self) -> AbstractContextManager[None]:
        """A `with` for rollouts whose steps are not replayed; it may merge LoRA adapters.

        Predictions within differ from others by rounding. Does nothing by default.
        """
        return nullcontext()

    @abstractmethod
    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        """The network's prediction: the velocity ("flow"); the noise or v ("vp").

        Guidance is applied here and nowhere else, so sampling, replay and evaluation agree. It
        must be deterministic, so that a replayed step has a ratio of exactly 1.

        Args:
            x: latents `[B, C, h, w]`, as all of a sample's latents have `resolution.shape`.
            t: times `[B]` in [0, 1]; 1 is pure noise.
            condition: of B rows, from `encode`.

        Returns:
            `[B, C, h, w]`, float32, with gradient to `weights.parameters` unless disabled.
        """

    @abstractmethod
    def decode(self, latents: Tensor) -> Tensor:
        """Images or videos of latents.

        Args:
            latents: `[B, C, h, w]` or `[B, C, t, h, w]`, at t = 0.

        Returns:
            `[B, 3, H, W]` or `[B, F, 3, H, W]`, uint8, rounded, on the CPU.
        """

    def decode_pixels(self, latents: Tensor) -> Tensor:
        """`decode` with a gradient: images that are not rounded, for a reward's `score_pixels`.

        Args:
            latents: `[B, C, h, w]`, at t = 0.

        Returns:
            `[B, 3, H, W]`, float32 in [0, 1], on the model's device.

        Raises:
            ModelError: the model has no such decoder.
        """
        raise ModelError(
            f"{type(self).__name__} decodes without a gradient: its class needs the method"
            " `decode_pixels`"
        )

    def encode_images(self, images: Tensor) -> Tensor:
        """Latents of images of the data, which `decode` turns into them again, nearly.

        Args:
            images: `[B, 3, H, W]` uint8, of the resolution; `[B, F, 3, H, W]` of videos.

        Returns:
            `[B, C, h, w]`, of videos `[B, C, t, h, w]`, float32, on the model's device.

        Raises:
            ModelError: the model has no encoder of images.
        """
        raise ModelError(
            f"{type(self).__name__} does not encode images of the data: its class needs the method"
            " `encode_images`"
        )

    @abstractmethod
    def pipeline_arguments(self) -> dict[str, object]:
        """Keyword arguments with which calling the pipeline predicts as `predict` does."""

    def pipeline_settings(self) -> Sequence[str]:
        """Lines of code before such a call, for what has no argument. None by default."""
        return ()


def with_values(network: Any, values: Mapping[str, Tensor] | None) -> Any:
    """A network of diffusers or transformers to call `save_pretrained` of, which then writes
    `values`, full tensors by the parameters' names (None: its own); `network` is not changed.
    """
    if values is None:
        return network
    names = {id(p): name for name, p in network.named_parameters()}
    # by identity: tied parameters have several keys and one name, and share a tensor when saved
    state = {
        key: values.get(names.get(id(tensor), key), tensor.detach())
        for key, tensor in network.state_dict(keep_vars=True).items()
    }
    shown = copy.copy(network)  # shares all modules and parameters; only this attribute is its own
    shown.state_dict = lambda *_, **__: dict(state)
    return shown


def with_prefix(values: Mapping[str, Tensor] | None, prefix: str) -> dict[str, Tensor] | None:
    """The values whose names begin with `prefix`, without it."""
    if values is None:
        return None
    return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
