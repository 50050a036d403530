"""Facts on a teacher's files before anything is loaded.

Torch-free, for checks of a configuration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.model.pipelines.families import UNETS
from rlfactory.model.pipelines.local_models import folder_of, index_of, pipeline_of, read_json
from rlfactory.model.pipelines.scheduler_config import scheduler_of
from rlfactory.utils.types import Faults

ADAPTERS = "adapter_config.json"
"""What makes a folder one of adapters, as PEFT saves them."""


def adapter_folder(path: str) -> Path | None:
    """The folder of adapters that a path is; None if it is none."""
    folder = folder_of(path)
    return folder if folder is not None and (folder / ADAPTERS).is_file() else None


def teacher_faults(paths: Sequence[str] | None, model: str) -> Faults:
    """Faults of the teachers of a model, as far as this machine has their files."""
    if not paths:
        message = "is empty; allowed are paths of models, or of adapters of model.path"
        yield "teachers", message, ""
    for path in paths or ():
        if fault := teacher_fault(path, model):
            yield "teachers", f"has {path}, {fault}", ""


def teacher_fault(path: str, model: str) -> str | None:
    """Why a teacher can't teach the student `model`; None where nothing is known against it."""
    folder, own = folder_of(path), folder_of(model)
    if folder is None:
        is_hub = path.count("/") == 1 and path[0] not in "~./"
        return None if is_hub else "and there is no such folder"
    if own is None:
        return None
    if (folder / ADAPTERS).is_file():
        reason = "adapters of one network; of two allowed is what `export RUN --merge` writes"
        return reason if _has_two(own) else None
    kinds = [_kind(each) for each in (folder, own)]
    if kinds[0] != kinds[1]:
        return f"which is a {kinds[0]}; the model is a {kinds[1]}"
    words, known = vocabulary_of(folder), vocabulary_of(own)
    if words and known and words != known:
        return (
            f"whose vocabulary of {len(words)} tokens is not the {len(known)} of {model}: a teacher"
            " rates each token of the student, so both have the same tokenizer"
        )
    return None


def _kind(folder: Path) -> str:
    """The kind that a teacher and its student have in common."""
    name = pipeline_of(folder)
    if name in UNETS:
        return f"{name} that predicts {scheduler_of(folder).get('prediction_type', 'epsilon')}"
    return f"{name or 'language model'}{' of two networks' * _has_two(folder)}"


def _has_two(folder: Path) -> bool:
    """Whether a pipeline has one network for high and one for low noise."""
    return (index_of(folder).get("transformer_2") or [None])[0] is not None


def vocabulary_of(folder: Path) -> Mapping[str, int]:
    """The ids of a tokenizer's tokens by their texts; empty where its files do not say."""
    tokenizer = read_json(folder / "tokenizer.json")
    found: Any = (tokenizer.get("model") or {}).get("vocab") or {}
    if not isinstance(found, Mapping):  # a unigram model lists its tokens with their scores
        found = {entry[0]: number for number, entry in enumerate(found)}
    added = {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or ()}
    return {**found, **added}
