"""Networks of transformers that judge: loaded silently and whole, or with an error that says why
not.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedConfig
from transformers.utils import logging as transformers_log

from rlfactory.model.hub import ModelError, explained
from rlfactory.reward.base import RewardError


@contextmanager
def loading(key: str, path: str, kind: str) -> Iterator[Callable[[str], str]]:
    """Raise what goes wrong in loading as a RewardError that names the key, and show no bars.

    What is handed over turns a place into one to load from, as `explained` does.
    """
    shown, level = transformers_log.is_progress_bar_enabled(), transformers_log.get_verbosity()
    transformers_log.disable_progress_bar()
    transformers_log.set_verbosity_error()
    try:
        with explained(path, kind, key=key) as locate:
            yield locate
    except ModelError as error:
        raise RewardError(str(error)) from error
    finally:
        transformers_log.set_verbosity(level)
        if shown:
            transformers_log.enable_progress_bar()


def whole_model(kind: Any, place: str, dtype: torch.dtype, *, without: str | None = None) -> Any:
    """The frozen model of a class, or of an `Auto` class; ValueError where a part of it is missing
    but that called `without`, or where it is a model of another kind.
    """
    config = getattr(kind, "config_class", None)
    found = PreTrainedConfig.get_config_dict(place)[0].get("model_type") if config else None
    if config and found != config.model_type:
        raise ValueError(f"it is a {found}")
    model, info = kind.from_pretrained(place, dtype=dtype, output_loading_info=True)
    _require_weights(info, without)
    return model.eval().requires_grad_(False)


def _require_weights(info: Mapping[str, Any], without: str | None) -> None:
    """ValueError where weights would be random numbers: a model of another kind lacks the head."""
    missing = sorted(map(str, {*info["missing_keys"], *info["mismatched_keys"]}))
    missing = [name for name in missing if without is None or without not in name]
    if missing:
        raise ValueError(f"it has no weights for {', '.join(missing[:4])}")


def whole_tokenizer(place: str) -> Any:
    """The tokenizer that lies there; ValueError where it has no vocabulary."""
    tokenizer = AutoTokenizer.from_pretrained(place)
    # transformers makes one without a vocabulary where a folder has none
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ValueError("its tokenizer is missing")
    return tokenizer


def longest(model: Any, tokenizer: Any) -> int:
    """The tokens that a model has positions for, as far as it or its tokenizer says."""
    most: int = tokenizer.model_max_length
    return min(most, getattr(model.config, "max_position_embeddings", most) or most)
