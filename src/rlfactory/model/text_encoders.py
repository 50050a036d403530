"""The text encoders of a pipeline: asked once for each prompt, and in memory only while needed."""

import gc
import importlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from diffusers import DiffusionPipeline
from torch import nn

from rlfactory.model.conditioning import encode_once
from rlfactory.model.families import PIPELINE_INDEX
from rlfactory.model.pipeline import no_bars, pipeline_folder
from rlfactory.model.places import read_json
from rlfactory.model.prompt_cache import PromptCache, Text, identity_of_files
from rlfactory.rollout import Condition

log = logging.getLogger(__name__)

ENCODER, TOKENIZER = "text_encoder", "tokenizer"


class TextEncoders:
    """What turns prompts into a condition, for the pipeline of class `kind` at `path`.

    It is made before the pipeline, which is to be loaded without the parts that `left_out` names
    and then handed over by `serve`. `options` are what else changes an embedding.
    """

    def __init__(
        self,
        kind: type[DiffusionPipeline],
        path: str,
        cache: PromptCache,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        *,
        always: Sequence[str] = (),
        **options: object,
    ) -> None:
        self.folder = pipeline_folder(kind, path)
        self.device, self.dtype = device, dtype
        index = read_json(self.folder / PIPELINE_INDEX)
        parts = [name for name in index if name.startswith((ENCODER, TOKENIZER))]
        self.classes = {
            name: index[name] for name in parts if name.startswith(ENCODER) and index[name][0]
        }
        self.known = cache.open(
            {
                "pipeline": kind.__name__,
                "path": path,
                "files": identity_of_files(self.folder, parts) if cache.folder else None,
                "dtype": dtype,
                "device": device.type,
                "diffusers": diffusers.__version__,
                "transformers": transformers.__version__,
                **options,
            }
        )
        self.expected = cache.prompts
        self.are_away = bool(self.expected) and self.known.holds([*self.expected, *always])

    @property
    def left_out(self) -> dict[str, None]:
        """Parts of the pipeline that need not be loaded, as its loader takes them."""
        return dict.fromkeys(self.classes if self.are_away else ())

    def serve(self, pipe: Any, encode: Callable[[list[str]], Text]) -> None:
        """Take over the encoders of `pipe`; `encode` gives rows for prompts by them."""
        self._pipe, self._encode = pipe, encode

    def __call__(self, prompts: Sequence[str]) -> Condition:
        """One row for each prompt, on the device."""
        return encode_once(prompts, self.known, self._encode_new, self.device)

    def prepare(self) -> None:
        """Encode what is expected and not yet known; then the encoders go, if all of it is kept.

        Where nothing is expected, prompts have no end: the encoders stay.
        """
        if not self.expected:
            return
        new = [prompt for prompt in self.expected if not self.known.holds([prompt])]
        if new:
            log.info("%d of %d prompts are encoded", len(new), len(self.expected))
        for prompt in new:
            self([prompt])
        if self.known.holds(self.expected):
            self.drop()
        else:
            log.info("the text encoders stay: all prompts are more than is kept without a disk;")
            log.info("prompt_cache=FOLDER keeps any number")

    def drop(self) -> None:
        """Let go of the encoders; the tokenizers, which are small, stay."""
        if self.are_away:
            return
        self._pipe.register_modules(**dict.fromkeys(self.classes))
        self.are_away = True
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _encode_new(self, prompts: list[str]) -> Text:
        if self.are_away:
            log.warning("a prompt is new: the text encoders are loaded again")
            self._pipe.register_modules(**self._loaded())
            self.are_away = False
        return self._encode(prompts)

    def _loaded(self) -> dict[str, nn.Module]:
        return {
            name: _load(library, kind, self.folder / name, self.dtype).to(self.device)
            for name, (library, kind) in self.classes.items()
        }


def _load(library: str, kind: str, folder: Path, dtype: torch.dtype) -> nn.Module:
    """One encoder, frozen."""
    with no_bars():
        found = getattr(importlib.import_module(library), kind).from_pretrained(folder, dtype=dtype)
    network: nn.Module = found.requires_grad_(False).eval()
    return network
