"""The keys of a configuration whose values name files and folders."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Config = Mapping[str, Any]
FUNCTION = "function"
"""A key whose value is `FILE.py:NAME` or `MODULE:NAME`."""
FOLDERS = ("begin_from", "prompt_cache")
"""Keys whose values are folders, also where they do not exist yet. Other paths may be hub ids."""


def path_values(config: object, prefix: str = "") -> dict[str, str]:
    """The values that name files, folders or models, by their dotted keys."""
    return dict(_path_values(config, prefix))


def with_values(config: Config, values: Mapping[str, str]) -> dict[str, Any]:
    """A configuration with other values at these dotted keys."""
    changed = dict(config)
    for key, value in values.items():
        name, _, below = key.partition(".")
        changed[name] = with_values(changed[name], {below: value}) if below else value
    return changed


def with_absolute_paths(config: Config) -> dict[str, Any]:
    """A configuration with absolute paths, so that it means the same in every working directory.

    A value that names nothing on this disk (a hub id, `zoo:NAME`, `MODULE:NAME`) stays as it is.
    """
    return with_values(config, {k: absolute(k, v) for k, v in path_values(config).items()})


def absolute(key: str, value: str) -> str:
    """The absolute path of the value of a path key, if it names a file or folder."""
    file = file_of(key, value)
    is_file = os.path.exists(file) or key.rpartition(".")[2] in FOLDERS
    return with_file(value, file.absolute()) if is_file else value


def file_of(key: str, value: str) -> Path:
    """The file or folder that the value of a path key names, if it is one."""
    has_name = key.rpartition(".")[2] == FUNCTION and ".py:" in value
    return Path(value.rpartition(":")[0] if has_name else value).expanduser()


def with_file(value: str, file: Path) -> str:
    """The value of a path key with another file; the name of a function stays."""
    _, mark, name = value.rpartition(".py:")
    return f"{file}:{name}" if mark else str(file)


def _path_values(node: object, prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in node.items() if isinstance(node, Mapping) else ():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _path_values(value, f"{key}.")
        elif isinstance(value, str) and _is_path_key(str(name)):
            yield key, value


def _is_path_key(name: str) -> bool:
    return name in (FUNCTION, *FOLDERS) or name == "path" or name.endswith("_path")
