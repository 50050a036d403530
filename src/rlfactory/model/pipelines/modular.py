"""Modular pipelines, which diffusers has of some families alone: blocks, and components that are
loaded one by one. Here they stand for pipelines.

The components that a family needs lie in the pipeline's own folder, and are loaded from there,
wherever its index says that they came from. Those that no adapter calls, such as an upsampler of
prompts, are not loaded; a pipeline that is saved names them as that of the base did.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from diffusers import DiffusionPipeline, ModularPipeline
from huggingface_hub import snapshot_download

from rlfactory.model.pipelines.local_models import MODULAR_INDEX, UNUSED, part_variant

Kind = type[DiffusionPipeline] | type[ModularPipeline]


def is_modular(pipe: Any) -> bool:
    """Whether a pipeline, or a class of pipelines, is modular."""
    return issubclass(pipe if isinstance(pipe, type) else type(pipe), ModularPipeline)


def register(pipe: Any, **components: Any) -> None:
    """Set components of a pipeline of either kind; None removes one."""
    (pipe.register_components if is_modular(pipe) else pipe.register_modules)(**components)


def download_modular(repo: str) -> str:
    """The local folder of a hub id's files, without the parts that no adapter calls."""
    return snapshot_download(repo, ignore_patterns=[f"{part}/*" for part in UNUSED])


def load_modular(
    kind: type[ModularPipeline],
    folder: Path,
    dtypes: Mapping[str, torch.dtype],
    components: Mapping[str, Any],
) -> ModularPipeline:
    """The modular pipeline in a folder, which has one for each component, without those that no
    adapter calls, and without the blocks that call them: a prompt is encoded as it is given.

    `dtypes` are those of the components by name, with a `default`, else float32; `components`
    replace its own by name (None: not loaded). ValueError where one can't be loaded.
    """
    pipe = kind(pretrained_model_name_or_path=str(folder))
    for name in pipe.pretrained_component_names:
        if name not in (*UNUSED, *components):
            loaded = pipe.get_component_spec(name).load(
                pretrained_model_name_or_path=str(folder),
                subfolder=name,
                variant=part_variant(folder / name),
                revision=None,
                dtype=dtypes.get(name, dtypes.get("default", torch.float32)),
            )
            register(pipe, **{name: loaded})
    register(pipe, **components)
    _leave_out_unused(pipe)
    return pipe


def with_components(kind: type[ModularPipeline], components: Mapping[str, Any]) -> ModularPipeline:
    """A modular pipeline of these components, whose blocks call no others."""
    pipe = kind()
    register(pipe, **components)
    _leave_out_unused(pipe)
    return pipe


def _leave_out_unused(pipe: ModularPipeline) -> None:
    for name in UNUSED:
        pipe._blocks.sub_blocks.pop(name, None)


def save_pipeline(pipe: Any, folder: Path) -> None:
    """Write a pipeline of either kind."""
    if not is_modular(pipe):
        pipe.save_pretrained(folder, safe_serialization=True)
        return
    pipe.save_pretrained(str(folder), safe_serialization=True, overwrite_modular_index=True)
    name_place(folder, None)


def name_place(folder: Path, repo: str | None) -> None:
    """Have the index of a modular pipeline in `folder`, if it is one, say where the components that
    it holds will lie: in a hub id, or (None) in the folder itself, wherever it is.
    """
    file = folder / MODULAR_INDEX
    if not file.is_file():
        return
    index = json.loads(file.read_text(encoding="utf-8"))
    for name, value in index.items():
        if isinstance(value, list) and (folder / name).is_dir():
            value[2] |= {"pretrained_model_name_or_path": repo, "subfolder": name, "revision": None}
    file.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
