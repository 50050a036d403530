"""A network of transformers with all of its weights, and what prepares its input."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import PreTrainedConfig
from transformers.utils import logging as transformers_log

from rlfactory.reward.base import RewardError
from rlfactory.zoo.models import resolve


def whole_model(kind: Any, path: str, key: str, dtype: torch.dtype) -> Any:
    """The frozen model of a class from a folder or hub id; RewardError where it is not whole."""
    with _explained(path, key, kind.__name__), _no_bars():
        source = resolve(path, "config.json")
        found = PreTrainedConfig.get_config_dict(source)[0].get("model_type")
        if found != kind.config_class.model_type:
            raise ValueError(f"it is a {found}")
        model, info = kind.from_pretrained(source, dtype=dtype, output_loading_info=True)
        missing = sorted(map(str, {*info["missing_keys"], *info["mismatched_keys"]}))
        if missing:
            raise ValueError(f"it has no weights for {', '.join(missing[:4])}")
    return model.eval().requires_grad_(False)


def processor(kind: Any, path: str, key: str, **options: object) -> Any:
    """A tokenizer or an image processor that lies beside a model; RewardError where none does."""
    with _explained(path, key, kind.__name__):
        return kind.from_pretrained(resolve(path, "config.json"), **options)


@contextmanager
def _explained(path: str, key: str, kind: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise RewardError(f"{key}={path} could not be loaded as {kind}: {error}") from error


@contextmanager
def _no_bars() -> Iterator[None]:
    shown, level = transformers_log.is_progress_bar_enabled(), transformers_log.get_verbosity()
    transformers_log.disable_progress_bar()
    transformers_log.set_verbosity_error()
    try:
        yield
    finally:
        transformers_log.set_verbosity(level)
        if shown:
            transformers_log.enable_progress_bar()
