"""The common part of all image adapters: a diffusers pipeline, one of its networks trained.

A rectified flow derives from `flow_model.FlowModel`, of which `sd3.py` is the shortest example; any
other model is a subclass of `PipelineModel`, as `sd.py`. It sets the class attributes, and
implements `resolution_of` and `_predict`; `conf/model/NAME.yaml` names it as `_target_`. A
constructor of its own takes further options and other defaults, and passes on `**options`.
Guidance, autocast, offloading, the embedding cache, LoRA and export are done here.
"""

import copy
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import diffusers
import torch
from torch import Tensor

from rlfactory.model.base import with_values
from rlfactory.model.lora import Init, Lora, merge_adapters, with_adapters
from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.embedding_cache import IN_MEMORY, PromptCache, TextEmbeddings
from rlfactory.model.pipelines.hub_models import no_bars
from rlfactory.model.pipelines.latents import (
    Latents,
    Scaled,
    decode_latents,
    encode_pixels,
    to_unit,
)
from rlfactory.model.pipelines.modular import save_pipeline
from rlfactory.model.pipelines.pipeline_loading import load_pipeline
from rlfactory.model.pipelines.text_encoders import open_pipeline, report_cut
from rlfactory.model.precision import Precision
from rlfactory.model.prompt_encoding import NEGATIVE, PLAIN, PromptEncoding
from rlfactory.model.weight_sets import WeightSets
from rlfactory.rollout import Condition
from rlfactory.utils.errors import ModelError
from rlfactory.utils.pytree import to_device
from rlfactory.utils.types import LoraTargets, NonNegative, Positive, PositiveInt, Size


class PipelineModel(PromptEncoding):
    """An image model inside a diffusers pipeline; subclasses say how its networks are called.

    Args:
        path: `zoo:NAME`, a folder or a hub id.
        finetune: lora | full.
        lora_rank: Rank of the adapters.
        lora_alpha: Adapters are scaled by alpha / rank.
        lora_init: gaussian | kaiming | orthogonal: initial adapters, always with zero effect.
        negative_prompt: The prompt that guidance steers away from.

    Raises:
        ModelError: the pipeline can't be loaded, is of another class, or does not fit an option.

    Attributes:
        part: which component of the pipeline is trained.
        pipe: the pipeline, frozen but for the trained network or its adapters.
        lora: the adapters; None with full fine-tuning.
        guidance: the guidance scale; classifier-free guidance applies above 1.
    """

    part: ClassVar[Literal["transformer", "unet"]]

    lora: Lora | None

    adapted: list[str]
    """The module names that get adapters where `lora_targets` names none."""
    latents: ClassVar[Latents] = Scaled()
    """How the network's latents follow from the autoencoder's."""
    load_options: ClassVar[Mapping[str, Any]] = {}
    """Keywords for the pipeline's `from_pretrained`."""

    def __init__(
        self,
        device: torch.device,
        seed: int = 0,
        precision: Precision | None = None,
        memory: Memory | None = None,
        prompt_cache: PromptCache = IN_MEMORY,
        *,
        path: str,
        finetune: Literal["lora", "full"] = "lora",
        lora_rank: PositiveInt = 32,
        lora_alpha: Positive = 64.0,
        lora_targets: LoraTargets = None,
        lora_init: Init = "gaussian",
        size: Size = 512,
        guidance: NonNegative = 1.0,
        negative_prompt: str = "",
    ) -> None:
        self.device, self.path, self.finetune = device, path, finetune
        self.precision = precision or Precision()
        self.precision.set_matmul_precision(device)
        self.memory = memory or Memory()
        self.guidance, self.negative_prompt = guidance, negative_prompt
        apart = guidance > 1 and not self.negatives_beside
        negatives = [PLAIN * self.plain_negative + negative_prompt] if apart else []
        self.pipe, self.text_encoders = open_pipeline(
            getattr(diffusers, self.pipeline),
            path,
            device,
            self.precision,
            self.memory,
            prompt_cache,
            self._encode,
            networks=list(filter(None, (self.part, self.second_part))),
            trained_parts=self.trained_parts if finetune == "full" else (),
            always=negatives,
            embedding_options=self.embedding_options(size),
            others=["vae"] if self.pictures else [],
            **self.load_options,
        )
        self._negative = self._encode_negative(negatives[0]) if negatives else None
        self.check_options()
        self.resolution = self.resolution_of(size)
        self.lora = None
        if finetune == "lora":
            given: dict[str, Any] = {"rank": lora_rank, "alpha": lora_alpha, "init": lora_init}
            targets = lora_targets or self.adapted
            self.lora = Lora(self.network, targets=targets, seed=seed, device=device, **given)
        self._prepare_network()

    def _prepare_network(self) -> None:
        """Train the network or its adapters, as `memory` says."""
        if self.lora is None:
            for network in self.trained_networks.values():
                network.requires_grad_(True)
        elif not self.memory.compile:  # compiled blocks choose by themselves what they keep
            from rlfactory.model.saved_activations import keep_halves  # of adapters alone

            keep_halves(self.network)
        # after the adapters, which checkpointing and compilation have to include
        self.memory.prepare(self.network)
        self.weights = WeightSets(
            {name: p for name, p in self.network.named_parameters() if p.requires_grad},
            self.lora.off if self.lora else None,
            offload=self.memory.offload_weights,
        )

    def check_options(self) -> None:
        """Raise ModelError where an option does not fit the pipeline, which is open."""
        return

    def merged_adapters(self) -> AbstractContextManager[None]:
        """LoRA adapters are merged within the `with`, if `memory` says so."""
        merges = self.memory.merges_adapters(self.device, self.precision.rollout)
        # a shard of a weight can't be merged with whole adapters
        if self.lora is None or not merges or self.weights.sharding is not None:
            return nullcontext()
        return self.lora.merged()

    @property
    def network(self) -> Any:
        """The network that is trained, or that carries the adapters."""
        return getattr(self.pipe, self.part)

    @property
    def trained_parts(self) -> tuple[str, ...]:
        """The names of the components that are trained; not all need be in every pipeline."""
        return (self.part,)

    @property
    def trained_networks(self) -> dict[str, Any]:
        """The components that are trained, or carry adapters, by name."""
        found = {name: getattr(self.pipe, name, None) for name in self.trained_parts}
        return {name: network for name, network in found.items() if network is not None}

    def frozen(self, path: str) -> Self:
        """See the contract; prompts are encoded once, for both."""
        # not imported where nothing teaches
        from rlfactory.model.pipelines.teacher_files import adapter_folder, teacher_fault

        adapters, parts = adapter_folder(path), self.pipe.components
        own = {n: parts[n] for n in (self.part, self.second_part) if parts.get(n) is not None}
        others = {name: part for name, part in parts.items() if name not in own}
        kind, base = getattr(diffusers, self.pipeline), path if adapters is None else self.path
        pipe: Any = load_pipeline(kind, base, self.precision.weights, **others)
        if fault := teacher_fault(path, self.path):  # of a hub id the plan may have had no files
            raise ModelError(f"algo.teachers has {path}, {fault}")
        teacher = copy.copy(self)
        teacher.pipe, teacher.lora = pipe, None
        vars(teacher).pop("network", None)  # two as one are kept
        for name, trained in own.items():
            network = getattr(pipe, name)
            if adapters is not None:
                network = with_adapters(network, adapters)
            given, channels = network.config.in_channels, trained.config.in_channels
            if given != channels:
                raise ModelError(
                    f"algo.teachers has {path}, of latents with {given} channels; the model's have"
                    f" {channels}"
                )
            setattr(pipe, name, network.requires_grad_(False).eval().to(self.device))
        return teacher

    def prepare(self) -> None:
        """Encode all expected prompts and unload the text encoders; say which are cut.

        On a GPU the network makes room for them meanwhile: nothing samples or learns yet.
        """
        report_cut(self._read, self.text_encoders.expected)
        with self._network_away():
            self.text_encoders.prepare()

    @contextmanager
    def _network_away(self) -> Iterator[None]:
        """The network is on the CPU within the `with`, if prompts are to be encoded on a GPU."""
        encoders = self.text_encoders
        # a network that is sharded is small, and its shards belong to FSDP
        shards = any(hasattr(parameter, "device_mesh") for parameter in self.network.parameters())
        if self.device.type != "cuda" or shards or not encoders.has_new_prompts():
            yield
            return
        self.network.to("cpu")
        try:
            yield
        finally:
            self.network.to(self.device)

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        """The prediction, with classifier-free guidance if `guidance` is above 1."""
        tensors = condition.tensors
        beside = {n: rows for n, rows in tensors.items() if n.startswith(NEGATIVE)}
        own = {n: rows for n, rows in tensors.items() if n not in beside}
        negative = {n.removeprefix(NEGATIVE): rows for n, rows in beside.items()} or self._negative
        if negative is None:
            return self._evaluate(x, t, own)
        # one pass of 2 B rows, which both carry gradient; what the negative prompt lacks, such as a
        # picture, is that of the prompts
        both = {
            name: torch.cat([negative.get(name, rows).expand_as(rows), rows])
            for name, rows in own.items()
        }
        found = self._evaluate(torch.cat([x, x]), torch.cat([t, t]), both)
        without, guided = found.chunk(2)
        return self._combine(without, guided, t)

    def _combine(self, negative: Tensor, positive: Tensor, t: Tensor) -> Tensor:
        """The guided prediction, as the family's pipeline computes it (arXiv 2207.12598)."""
        return negative + self.guidance * (positive - negative)

    def _evaluate(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        self.evaluations.add(len(x))
        with self.precision.autocast(x.device):
            prediction = self._predict(x, t, text)
        # schedules, likelihoods and losses are computed in float32
        return prediction.float()

    @abstractmethod
    def _predict(self, x: Tensor, t: Tensor, text: TextEmbeddings) -> Tensor:
        """One forward pass of the network, of the shape of `x`; called within autocast.

        Args:
            x: latents `[B, C, h, w]` or `[B, C, t, h, w]`; B is doubled under guidance.
            t: times `[B]` in [0, 1].
            text: what `_encode` returned, B rows.
        """

    @property
    def latent_pixels(self) -> int:
        """Pixels for each latent, along an edge."""
        return int(self.pipe.vae_scale_factor)

    @property
    def edges(self) -> tuple[int, int]:
        """Height and width of rollouts, in pixels."""
        height, width = (self.latent_pixels * edge for edge in self.resolution.shape[-2:])
        return height, width

    def decode(self, latents: Tensor) -> Tensor:
        """Images or videos by the pipeline's own autoencoder."""
        with self.memory.decoding(self.pipe.vae, self.device):
            return decode_latents(self._decode, latents, self.latent_pixels)

    def decode_pixels(self, latents: Tensor) -> Tensor:
        """By the same autoencoder, which stays there for the backward pass."""
        if self.memory.offload_vae:  # `decode` offloads it again
            self.pipe.vae.to(self.device)
        return to_unit(self._decode(latents))

    def _decode(self, latents: Tensor) -> Tensor:
        """Pixels `[B, 3, H, W]`, of a video `[B, F, 3, H, W]`, in [-1, 1]."""
        return self.latents.decode(self.pipe.vae, latents)

    def encode_images(self, images: Tensor) -> Tensor:
        """By the pipeline's own autoencoder; of a distribution of latents the mode."""
        with self.memory.decoding(self.pipe.vae, self.device):
            return encode_pixels(self._latents_of, to_device(images, self.device))

    def _latents_of(self, pixels: Tensor) -> Tensor:
        """The inverse of `_decode`, as far as the autoencoder is; without gradient."""
        return self.latents.encode(self.pipe.vae, pixels)

    def export(self, folder: Path, values: Mapping[str, Tensor] | None = None) -> None:
        """LoRA: one folder that diffusers and PEFT load. Full: a subfolder named after `part`."""
        if self.lora is None:
            network = with_values(self.network, values)
            network.save_pretrained(folder / self.part, safe_serialization=True)
            return
        layers, metadata = f"{self.part}_lora_layers", f"{self.part}_lora_adapter_metadata"
        saved = {layers: self.lora.state_dict(values), metadata: self.lora.metadata()}
        self.pipe.save_lora_weights(folder, **saved)
        self.lora.save_for_peft(folder, values)

    def export_merged(self, folder: Path) -> None:
        """A complete pipeline folder."""
        if self.lora is not None:
            merge_adapters(self.network)
        with no_bars():
            save_pipeline(self.pipe, folder)

    def pipeline_arguments(self) -> dict[str, object]:
        """`guidance_scale`, and `negative_prompt` if there is one."""
        arguments: dict[str, object] = {"guidance_scale": self.guidance}
        if self.negative_prompt:
            arguments["negative_prompt"] = self.negative_prompt
        return arguments
