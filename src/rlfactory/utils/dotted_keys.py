"""The values of a configuration by their dotted keys, such as `optimizer.lr`; and which of the keys
name files and folders.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Config = Mapping[str, Any]
FUNCTION = "function"
"""A key whose value is `FILE.py:NAME` or `MODULE:NAME`."""
FOLDERS = ("begin_from", "prompt_cache")
"""Keys whose values are folders, also where they do not exist yet. Other paths may be hub ids."""


def value_at(config: object, key: str, default: object = None) -> Any:
    """The value at a dotted key; `default` where a mapping lacks one of its parts."""
    node = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return default
        node = node[part]
    return node


def leaves(config: object, prefix: str = "", *, targets: bool = False) -> Iterator[tuple[str, Any]]:
    """The dotted keys and values of all values that are no mappings; `_target_`s with `targets`."""
    for name, value in config.items() if isinstance(config, Mapping) else ():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.", targets=targets)
        elif targets or name != "_target_":
            yield f"{prefix}{name}", value


def texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text inside a value, in mappings and lists, with its dotted key: `_target_`s too."""
    if isinstance(value, str):
        yield key, value
    pairs = enumerate(value) if isinstance(value, list | tuple) else ()
    for name, inner in value.items() if isinstance(value, Mapping) else pairs:
        yield from texts(inner, f"{key}.{name}" if key else str(name))


def last_part(key: str) -> str:
    """The last part of a dotted key."""
    return key.rpartition(".")[2]


def with_values(config: Config, values: Config) -> dict[str, Any]:
    """A configuration with other values at these dotted keys."""
    changed = dict(config)
    for key, value in values.items():
        name, _, below = key.partition(".")
        changed[name] = with_values(changed.get(name, {}), {below: value}) if below else value
    return changed


def merged(below: Any, above: Any) -> Any:
    """A mapping with another one's values on top."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    return {**below, **{key: merged(below.get(key), value) for key, value in above.items()}}


def path_values(config: Config, prefix: str = "") -> dict[str, str]:
    """The values that name files, folders or models, by their dotted keys."""
    found = ((key, v) for key, v in leaves(config, prefix) if isinstance(v, str))
    return {key: value for key, value in found if _is_path_key(last_part(key))}


def with_absolute_paths(config: Config) -> dict[str, Any]:
    """A configuration with absolute paths, so that it means the same in every working directory.

    A value that names nothing on this disk (a hub id, `zoo:NAME`, `MODULE:NAME`) stays as it is.
    """
    return with_values(config, {k: absolute(k, v) for k, v in path_values(config).items()})


def absolute(key: str, value: str) -> str:
    """The absolute path of the value of a path key, if it names a file or folder."""
    file = file_of(key, value)
    is_file = os.path.exists(file) or last_part(key) in FOLDERS
    return with_file(value, file.absolute()) if is_file else value


def file_of(key: str, value: str) -> Path:
    """The file or folder that the value of a path key names, if it is one."""
    has_name = last_part(key) == FUNCTION and ".py:" in value
    return Path(value.rpartition(":")[0] if has_name else value).expanduser()


def with_file(value: str, file: Path) -> str:
    """The value of a path key with another file; the name of a function stays."""
    _, mark, name = value.rpartition(".py:")
    return f"{file}:{name}" if mark else str(file)


def _is_path_key(name: str) -> bool:
    return name in (FUNCTION, *FOLDERS) or name == "path" or name.endswith("_path")
