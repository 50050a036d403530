"""Networks that judge texts, loaded by transformers: whole, or with an error that says why not."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_log

from rlfactory.reward.base import RewardError
from rlfactory.zoo.models import resolve


@contextmanager
def explained(path: str, kind: str) -> Iterator[None]:
    """Turn what goes wrong in loading into a RewardError that names the key; `kind` says of what.

    Bars and reports of transformers are hidden meanwhile.
    """
    try:
        with _no_bars():
            yield
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        # transformers goes on with the names of a hundred models
        reason = str(error).partition("\nModel type should be one of")[0]
        message = f"reward.path={path} could not be loaded as a {kind}: {reason}"
        raise RewardError(message) from error


def load_whole(auto: Any, path: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """A model of the class `auto` and its tokenizer; ValueError where a part of it is missing.

    `path` is `zoo:NAME`, a folder or a hub id.
    """
    source = resolve(path, "config.json")
    model, info = auto.from_pretrained(source, dtype=dtype, output_loading_info=True)
    tokenizer = AutoTokenizer.from_pretrained(source)
    _require_weights(info)
    # transformers makes a tokenizer without a vocabulary where a folder has none
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ValueError("its tokenizer is missing")
    return model, tokenizer


def longest(model: Any, tokenizer: Any) -> int:
    """The tokens that a model has positions for, as far as it or its tokenizer says."""
    most: int = tokenizer.model_max_length
    return min(most, getattr(model.config, "max_position_embeddings", most) or most)


def _require_weights(info: dict[str, Any]) -> None:
    """ValueError where weights would be random numbers: a model of another kind lacks the head."""
    missing = sorted(map(str, {*info["missing_keys"], *info["mismatched_keys"]}))
    if missing:
        raise ValueError(f"it has no weights for {', '.join(missing[:4])}, so it is none")


@contextmanager
def _no_bars() -> Iterator[None]:
    """Hide transformers' bars and its table of missing weights, which are reported in short."""
    shown, level = transformers_log.is_progress_bar_enabled(), transformers_log.get_verbosity()
    transformers_log.disable_progress_bar()
    transformers_log.set_verbosity_error()
    try:
        yield
    finally:
        transformers_log.set_verbosity(level)
        if shown:
            transformers_log.enable_progress_bar()
