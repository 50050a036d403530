"""Loading diffusers pipelines, frozen: shared by the image adapters."""

import copy
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import diffusers
import torch
from torch import nn

from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.families import NO_FAMILY
from rlfactory.model.pipelines.hub_models import explained, no_bars
from rlfactory.model.pipelines.local_models import (
    OPTIONS,
    PIPELINE_INDEXES,
    TEXT_TO_IMAGE,
    index_of,
    left_out,
    pipeline_of,
    resolve,
    variant_of,
)
from rlfactory.model.pipelines.modular import (
    Kind,
    download_modular,
    is_modular,
    load_modular,
    with_components,
)
from rlfactory.model.precision import Precision, in_dtype, network_device
from rlfactory.utils.errors import ModelError
from rlfactory.utils.live_objects import is_reference, unwrapped
from rlfactory.utils.live_objects import resolve as live

LIBRARIES = ("diffusers", "transformers")
"""Where the components of pipelines come from."""
CONVOLUTIONAL = ("vae", "unet")
"""Components of pipelines that consist of convolutions."""


@cache
def _download(kind: str, repo: str) -> str:
    """The local folder of a hub id's files, without the safety checker."""
    if is_modular(found := getattr(diffusers, kind)):
        return download_modular(repo)
    return str(found.download(repo, safety_checker=None))


def pipeline_folder(kind: Kind, path: str) -> Path:
    """The local folder of a pipeline, downloaded if necessary; ModelError where there is no such
    model, or it belongs to another pipeline class than `kind`.
    """
    with explained(path, kind.__name__) as locate, no_bars():
        location = locate(resolve(path, *PIPELINE_INDEXES))
        if not Path(location).is_dir():
            location = _download(kind.__name__, location)
    actual = pipeline_of(Path(location))
    if actual not in (kind.__name__, None):
        option = OPTIONS.get(str(actual))
        reason = f": {NO_FAMILY[str(actual)]}" if actual in NO_FAMILY else ""
        remedy = f"; type model={option} model.path={path}" if option else reason
        raise ModelError(f"model.path={path} is a {actual}, not a {kind.__name__}{remedy}")
    require_known_libraries(Path(location), path)
    return Path(location)


def require_known_libraries(folder: Path, path: str) -> None:
    """ModelError if a pipeline has a component of another library, which loading would import."""
    for name, value in index_of(folder).items():
        library = value[0] if isinstance(value, list) and value else None
        if isinstance(library, str) and library not in LIBRARIES and not _is_pipeline(library):
            known = " and ".join(LIBRARIES)
            raise ModelError(f"model.path={path}: {name} is of {library}, not of {known}")


def _is_pipeline(library: str) -> bool:
    """Whether a name is a package of pipelines in diffusers, which have a few components."""
    places = map(Path, diffusers.pipelines.__path__)
    return library.isidentifier() and any((place / library).is_dir() for place in places)


def load_pipeline(
    kind: Kind,
    path: str,
    dtype: torch.dtype | Mapping[str, torch.dtype],
    **components: object,
) -> Any:
    """Load a pipeline of class `kind`; `components` replace its own (None: not loaded). One that a
    Python caller handed over is copied.

    `dtype` is one for all components, or one per name, with a `default`.
    """
    # without a dtype, transformers' components would take the one they were saved in
    dtypes = {"default": dtype} if isinstance(dtype, torch.dtype) else dict(dtype)
    if is_reference(path):
        return copy_pipeline(kind, live(path), dtypes, components)
    folder = pipeline_folder(kind, path)
    replaced = {**dict.fromkeys(left_out(folder)), **components}
    with explained(path, kind.__name__), no_bars():
        if is_modular(kind):
            return load_modular(kind, folder, dtypes, replaced)
        return kind.from_pretrained(folder, dtype=dtypes, variant=variant_of(folder), **replaced)


def copy_pipeline(
    kind: Kind,
    pipe: Any,
    dtypes: Mapping[str, torch.dtype],
    components: Mapping[str, object],
) -> Any:
    """A pipeline of class `kind` with copies of the networks of `pipe`, which is not changed, in
    `dtypes` by name, with a `default`. `components` replace its own by name (None: not copied).

    An image-to-image pipeline of the same family is taken too; ModelError for another family.
    """
    if (actual := TEXT_TO_IMAGE.sub("", type(pipe).__name__)) != kind.__name__:
        raise ModelError(f"model is a {actual} in memory, not a {kind.__name__}")
    copies = {
        name: copy_network(part, dtypes.get(name, dtypes["default"]))
        for name, part in pipe.components.items()
        if name not in components and isinstance(part, nn.Module)
    }
    if is_modular(kind):
        return with_components(kind, {**pipe.components, **copies, **components})
    copied = kind.from_pipe(pipe, **copies, **components)
    for name, part in copied.components.items():  # `from_pipe` has one dtype for all
        if isinstance(part, nn.Module):
            in_dtype(part, dtypes.get(name, dtypes["default"]))
    return copied


def copy_network(network: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy on the CPU."""
    return in_dtype(copy.deepcopy(unwrapped(network)).to("cpu"), dtype)


def load_frozen(
    kind: Kind,
    path: str,
    device: torch.device,
    precision: Precision,
    memory: Memory,
    *,
    networks: Sequence[str] = (),
    trained_parts: Sequence[str] = (),
    **components: object,
) -> Any:
    """A pipeline with all components frozen, in evaluation mode, on `device` or offloaded.

    Those of the components `networks` that there are lie where `network_on` says.

    Weights are read as `precision.weights` directly, so there is never a larger copy. Two
    components are float32: the autoencoder, whose rounding would be visible in the images, and
    `trained_parts`, the networks of which all weights will be trained (none with LoRA).
    """
    in_float32 = dict.fromkeys(("vae", *trained_parts), torch.float32)
    dtypes = {"default": precision.weights, **in_float32}
    place = network_device(device)
    if networks and place.type == "meta":
        folder = pipeline_folder(kind, path)
        index = index_of(folder)
        for name in (name for name in networks if (index.get(name) or [None])[0]):
            dtype = dtypes.get(name, dtypes["default"])
            components[name] = _empty_network(folder, name, dtype)
    pipe = load_pipeline(kind, path, dtypes, **components)
    pipe.set_progress_bar_config(disable=True)
    for name, component in pipe.components.items():
        if isinstance(component, nn.Module):
            target = place if name in networks else memory.idle_device(name, device)
            component.requires_grad_(False).eval().to(target)
            is_fixed = name not in trained_parts and (name not in networks or target == device)
            in_2d = name in CONVOLUTIONAL and all(p.ndim < 5 for p in component.parameters())
            if device.type == "cuda" and in_2d and is_fixed:
                # the layout that cuDNN's half-precision kernels read; trained and sharded weights
                # keep theirs, which weight sets, gradients and FSDP expect
                component.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    memory.prepare_vae(pipe.vae)
    return pipe


def _empty_network(folder: Path, name: str, dtype: torch.dtype) -> nn.Module:
    """A component of a pipeline on `meta`, as its configuration says."""
    kind = getattr(diffusers, index_of(folder)[name][1])
    with torch.device("meta"):
        network: nn.Module = kind.from_config(kind.load_config(folder / name))
    return network.to(dtype)
