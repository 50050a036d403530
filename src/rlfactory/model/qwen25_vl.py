"""Adapter for Qwen2.5-VL: a language model whose prompts may have a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from transformers import DynamicCache, Qwen2VLImageProcessorPil

from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.attention import hidden_states
from rlfactory.model.lm.pictures import Pictures
from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.hub_models import explained
from rlfactory.model.pipelines.local_models import resolve
from rlfactory.utils.types import Faults, PositiveInt


class Qwen25VL(CausalLM):
    """A `Qwen2_5_VLForConditionalGeneration` by folder or hub id: its language model is trained, in
    full or by LoRA, and its vision tower is frozen.
    """

    auto_class = "AutoModelForImageTextToText"
    model_types = ("qwen2_5_vl",)
    ids = ("qwen2.5-vl",)
    reads_pictures = True
    frozen_part = "visual"
    absent = ("value_path",)

    def __init__(self, *given: Any, max_pixels: PositiveInt | None = None, **options: Any) -> None:
        """
        Args:
            max_pixels: Pixels of a picture, at most: larger ones are scaled down; null: as many as
                the model's image processor says.
        """
        self.max_pixels = max_pixels
        super().__init__(*given, **options)

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """A model that is here has a vision tower and an image processor; one process has all of
        it, and its own loop draws.
        """
        from rlfactory.model.pipelines.local_models import folder_of, read_json

        folder = folder_of(options["path"])
        if folder is not None:
            path, config = options["path"], read_json(folder / "config.json")
            if config and config.get("model_type") not in options["model_types"]:
                message = f"{path} is a {config.get('model_type')}, and no Qwen2.5-VL"
                yield "path", message, "model=causal_lm"
            elif config and "vision_config" not in config:
                yield "path", f"{path} has no vision_config in its config.json, so no vision", ""
            elif config and not (folder / "preprocessor_config.json").is_file():
                message = "has no preprocessor_config.json, by which pictures are read; copy it"
                yield "path", f"{path} {message} from the model that this one is made of", ""
        if options["long_prompts"] == "cut":
            message = "is cut, and a picture can't be; drop leaves such prompts out"
            yield "long_prompts", message, "model.long_prompts=drop"
        if run["hardware"].get("strategy") == "fsdp2":
            message = "is fsdp2, and ranks read different pictures; allowed are single and ddp"
            yield "hardware.strategy", message, "hardware=ddp"
        if not str(run["engine"]["_target_"]).endswith(".Own"):
            yield "engine", "is given no pictures; the model's own loop draws", "engine=own"

    def _prepare_passes(self, memory: Memory) -> None:
        super()._prepare_passes(memory)
        with explained(self.path, "a vision-language model") as locate:
            folder = locate(resolve(self.path, "config.json"))
            # not the default class, which needs torchvision and rounds otherwise
            processor = Qwen2VLImageProcessorPil.from_pretrained(folder)
        if self.max_pixels is not None:
            least = min(processor.size["shortest_edge"], self.max_pixels)
            processor.size = {"shortest_edge": least, "longest_edge": self.max_pixels}
        self.pictures = Pictures(self.network, processor, self.rows)
        config = self.network.config
        marks = (config.vision_start_token_id, config.image_token_id, config.vision_end_token_id)
        self.prompts.picture = "".join(self.tokenizer.convert_ids_to_tokens([*marks]))

    def frozen(self, path: str) -> Self:
        teacher = super().frozen(path)
        teacher.pictures = self.pictures.of(teacher.network)
        return teacher

    def with_pictures(self, prompts: Sequence[str], ids: list[list[int]]) -> list[list[int]]:
        return [self.pictures.in_prompt(p, row) for p, row in zip(prompts, ids, strict=True)]

    def _positions(self, prompt: Tensor, mask: Tensor) -> Tensor:
        return self.pictures.positions(prompt, mask)

    def _states(
        self,
        ids: Tensor,
        mask: Tensor | None,
        positions: Tensor | None,
        cache: DynamicCache | None,
    ) -> Tensor:
        """The states of whole rows without padding, positions are computed here."""
        if positions is None:
            positions = self._positions(ids, torch.ones_like(ids, dtype=torch.bool))
        embedded, axes = self.pictures.embedded(ids), positions.movedim(-1, 0)
        return hidden_states(self.network, None, mask, axes, cache, embedded=embedded)

    def _save(self, folder: Path, *given: Any) -> None:
        super()._save(folder, *given)
        self.pictures.processor.save_pretrained(folder)
