"""The model that a run started from, the code that names it, and configurations without folders."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from rlfactory.model.lm.trainable import gguf_of
from rlfactory.model.pipelines.local_models import (
    MODEL_INDEX,
    PIPELINE_INDEX,
    PIPELINE_INDEXES,
    ZOO_PREFIX,
    hub_cache,
    index_of,
    left_out,
    resolve,
    variant_of,
)
from rlfactory.utils.live_objects import is_reference
from rlfactory.utils.live_objects import resolve as live

FOLDER = (
    "The base model is a folder that is not on the hub, `{}`: put its path in the place of the name"
    " in the code."
)
SHIPPED = "The base model, `{}`, ships with the Python package `rlfactory`."
_END = r"""\s'",\[\]{}()"""
_INNER_PATH = re.compile(rf"(?<![\w.:~/-])(?:~|\.{{1,2}})?/(?:[^{_END}]*/)?([^{_END}]+)")
_LOCATIONS = ("_name_or_path", "name_or_path")
"""Keys in the JSON files of diffusers and transformers that say where something was loaded from."""


@dataclass(frozen=True)
class BaseModel:
    """A base model.

    Attributes:
        here: what loads it on this machine: a folder or a hub id.
        hub_id: its id on the hub, None if it has none.
        name: what readers elsewhere know it by: its hub id, `zoo:NAME`, or its folder's name.
        file: the GGUF file in its folder that holds it, if one does.
        variant: the variant of its files, if it has no others.
        lost: parts that its index names and whose files it lacks.
    """

    here: str
    hub_id: str | None
    name: str
    file: str | None = None
    variant: str | None = None
    lost: Sequence[str] = ()

    @property
    def expression(self) -> str:
        """The arguments, in Python, that name it on another machine."""
        if self._is_shipped:
            return f"zoo_path({self.name.removeprefix(ZOO_PREFIX)!r})"
        return self._with_options(self.name)

    @property
    def local_expression(self) -> str:
        """The arguments that name it on this machine."""
        return self._with_options(self.here)

    def _with_options(self, place: str) -> str:
        options = {"gguf_file": self.file, "variant": self.variant}
        given = [f"{k}={v!r}" for k, v in options.items() if v]
        return ", ".join([repr(place), *given, *(f"{name}=None" for name in self.lost)])

    @property
    def imports(self) -> list[str]:
        """The imports that `expression` needs."""
        shipped = "from rlfactory.model.pipelines.shipped import zoo_path"
        return [shipped] if self._is_shipped else []

    @property
    def notes(self) -> list[str]:
        """Notes for a reader on another machine."""
        if self.hub_id is not None:
            return []
        return [(SHIPPED if self._is_shipped else FOLDER).format(self.name)]

    @property
    def _is_shipped(self) -> bool:
        return self.name.startswith(ZOO_PREFIX)


def base_model(config: Mapping[str, Any], media: str) -> BaseModel:
    """The base model of a run's configuration."""
    path: str = config["model"]["path"]
    if is_reference(path):
        model = live(path)
        network = model[0] if isinstance(model, tuple) else model
        # as far as its config says where it was loaded from
        here = str(getattr(network.config, "_name_or_path", None) or "a model in memory")
        return BaseModel(here, None, Path(here).name)
    if media == "texts" and (file := gguf_of(Path(path).expanduser())) is not None:
        folder = file.parent.absolute()
        return BaseModel(str(folder), None, folder.name, file.name)
    found = resolve(path, *([MODEL_INDEX] if media == "texts" else PIPELINE_INDEXES))
    if path.startswith(ZOO_PREFIX):
        return BaseModel(str(Path(found).absolute()), None, path)
    if not Path(found).exists():
        return BaseModel(found, found, found)
    folder = Path(found).absolute()
    parts = folder.parts if folder.is_relative_to(hub_cache().absolute()) else ()
    # a folder of the hub's cache is `models--owner--name/snapshots/commit`
    cached = [part.removeprefix("models--") for part in parts if part.startswith("models--")]
    hub_id = cached[-1].replace("--", "/") if cached else None
    variant, lost = None, list[str]()
    if (folder / PIPELINE_INDEX).is_file():
        index = index_of(folder)
        variant = variant_of(folder)
        lost = [name for name in left_out(folder) if (index.get(name) or [None])[0]]
    return BaseModel(str(folder), hub_id, hub_id or folder.name, variant=variant, lost=lost)


def without_folders(value: Any) -> Any:
    """A configuration with the names alone of files and folders that lie outside its own folder."""
    if isinstance(value, dict):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    return _text_without_folders(value) if isinstance(value, str) else value


def command_without_folders(command: str) -> str:
    """A command line with only the names of such files and folders."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quotation without an end
        return _text_without_folders(command)
    shown = []
    for key, sign, value in (word.rpartition("=") for word in words):
        plain = value.strip("'\"")
        shown.append(f"{key}{sign}{value.replace(plain, _text_without_folders(plain))}")
    return shlex.join(shown)


def _text_without_folders(text: str) -> str:
    if text.startswith(("/", "~/", "./", "../")):
        return PurePath(text).name
    return _INNER_PATH.sub(r"\1", text)


def forget_locations(folder: Path) -> None:
    """Remove from JSON files where models and tokenizers were loaded from."""
    for path in folder.rglob("*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and any(content.pop(key, None) for key in _LOCATIONS):
            text = json.dumps(content, indent=2, ensure_ascii=False)
            path.write_text(text + "\n", encoding="utf-8")
