"""A pipeline that a Python caller hands over: copied, since its network is trained."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import nn

from rlfactory.model.pipelines.local_models import TEXT_TO_IMAGE
from rlfactory.utils.errors import ModelError


def copy_pipeline(
    kind: type[DiffusionPipeline],
    pipe: Any,
    dtypes: Mapping[str, torch.dtype],
    components: Mapping[str, object],
) -> DiffusionPipeline:
    """A pipeline of class `kind` with copies of the networks of `pipe`.

    Args:
        kind: the class; an image-to-image pipeline of the same family is taken for it.
        pipe: a pipeline; it is not changed.
        dtypes: of the copies by name, with a `default`.
        components: what replaces its components by name (None: not copied).

    Raises:
        ModelError: `pipe` is of another family.
    """
    if (actual := TEXT_TO_IMAGE.sub("", type(pipe).__name__)) != kind.__name__:
        raise ModelError(f"model is a {actual} in memory, not a {kind.__name__}")
    copies = {
        name: copy_network(part, dtypes.get(name, dtypes["default"]))
        for name, part in pipe.components.items()
        if name not in components and isinstance(part, nn.Module)
    }
    copied: DiffusionPipeline = kind.from_pipe(pipe, **copies, **components)
    for name, part in copied.components.items():  # `from_pipe` has one dtype for all
        if isinstance(part, nn.Module):
            part.to(dtypes.get(name, dtypes["default"]))
    return copied


def copy_network(network: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy on the CPU."""
    return copy.deepcopy(network).to("cpu", dtype)


def component_classes(pipe: Any) -> dict[str, tuple[str | None, str | None]]:
    """Library and class of each component by name, as in `model_index.json`."""
    return {
        name: (type(part).__module__.partition(".")[0], type(part).__name__)
        if part is not None
        else (None, None)
        for name, part in pipe.components.items()
    }
