"""The files that a run reads beside its model: prompts, and the code of reward functions.

A run folder keeps a copy of each with its checksum. The copy is read where the original is gone, so
that a run can be used on another machine; an original that is there is read even if it has changed.
Of adapters that are merged into the model the copy alone is read, as all that is learned is on top.
"""

import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from rlfactory.model.pipelines.adapter_files import find_adapters
from rlfactory.run.atomic_write import remove_all, write_text
from rlfactory.run.checkpoint.checksums import checksum
from rlfactory.run.folder import RunFolder
from rlfactory.utils.data_files import read_json
from rlfactory.utils.dotted_keys import Config, file_of, path_values, with_file, with_values

GROUPS = ("prompts", "reward", "eval_rewards", "eval_sets")
KINDS = (".txt", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".gz", ".parquet", ".py")
LARGEST = 64 * 2**20
"""Bytes of the largest file that is copied."""
INDEX, MOVED = "index.json", "moved.json"
MERGED = "merged_adapters"
"""A folder of adapters that are merged into the model, with what says their scale."""


class _Entry(TypedDict):
    """An input file: where it was, the name of its copy, and the checksum of both."""

    original: str
    copy: str
    sha256: str


log = logging.getLogger(__name__)


def keep_inputs(folder: RunFolder, config: Config) -> None:
    """Copy the input files of a new run to its folder `inputs`; makes no folder without any."""
    remove_all(folder.inputs)  # of a beginning that was killed, perhaps of another configuration
    index = {}
    for key, value in path_values({group: config.get(group) for group in GROUPS}).items():
        file = file_of(key, value)
        if file.suffix not in KINDS or not os.path.isfile(file) or file.stat().st_size > LARGEST:
            continue
        folder.inputs.mkdir(exist_ok=True)
        copy = folder.inputs / f"{key}{file.suffix}"
        shutil.copyfile(file, copy)
        index[key] = {"original": str(file), "copy": copy.name, "sha256": checksum(copy)}
    if index:
        write_text(folder.inputs / INDEX, json.dumps(index, indent=1) + "\n")
    merged = config["begin_from"] if config.get("begin_as") == "merged" else None
    if merged and (adapters := find_adapters(Path(merged).expanduser())) is not None:
        (folder.inputs / MERGED).mkdir(parents=True)
        for part in filter(Path.is_file, (adapters, adapters.with_name("adapter_config.json"))):
            shutil.copyfile(part, folder.inputs / MERGED / part.name)


def with_inputs(
    config: Config, folder: RunFolder, moved: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A run's configuration with the paths at which its files and its model are now: those of
    `moved` and of `remember`, by key, replace its own.
    """
    config = with_values(config, {**_read(folder.inputs / MOVED, str), **(moved or {})})
    for file in (folder.inputs / MERGED).glob("*.safetensors"):
        config["begin_from"] = str(file.absolute())
    values, found = path_values(config), {}
    for key, entry in _read(folder.inputs / INDEX, _Entry).items():
        copy = folder.inputs / Path(entry["copy"]).name
        file = file_of(key, values.get(key, ""))
        if key not in values or not copy.is_file():
            continue
        if not os.path.isfile(file):
            log.info("%s: %s is gone, so the run's copy is read", key, file)
            found[key] = with_file(values[key], copy.absolute())
        elif checksum(file) != entry["sha256"]:
            log.warning("%s: %s has changed since the run began, see %s", key, file, copy)
    return with_values(config, found)


def remember(folder: RunFolder, moved: Mapping[str, str]) -> None:
    """Keep paths by key in the run folder, where `with_inputs` finds them from now on."""
    if moved:
        folder.inputs.mkdir(exist_ok=True)
        known = {**_read(folder.inputs / MOVED, str), **moved}
        write_text(folder.inputs / MOVED, json.dumps(known, indent=1) + "\n")


def _read(file: Path, kind: Any) -> dict[str, Any]:
    """The entries of a file, by key; none where there is no file."""
    try:
        return dict(read_json(file, dict[str, kind], remedy="restore it from a copy, or remove it"))
    except FileNotFoundError:
        return {}
