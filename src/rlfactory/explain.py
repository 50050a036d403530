"""Where a value comes from: the files that set a key, in order, and the override that had the last
word.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from rlfactory._hydra import compose_config, defaults_list, options, shipped_folder
from rlfactory.problems import PlanError, unknown_key


@dataclass(frozen=True)
class Origin:
    """A place that sets a key, and what to."""

    place: str
    value: str


def explain(key: str, overrides: Sequence[str]) -> tuple[object, list[Origin]]:
    """A key's value and every place that set it; the last one counts."""
    value: object = compose_config(overrides).values
    for depth, part in enumerate(key.split(".")):
        if not isinstance(value, dict) or part not in value:
            known = value if isinstance(value, dict) else {}
            below = ".".join([*key.split(".")[:depth], part])
            raise PlanError([unknown_key(below, known, "rlfactory explain")])
        value = value[part]
    return value, [*_in_files(key, overrides), *_in_overrides(key, overrides)]


def _in_files(key: str, overrides: Sequence[str]) -> Iterator[Origin]:
    for config_path, package in defaults_list(overrides):
        path = _file(config_path, overrides)
        inner = key if package in ("", "_global_") else key.removeprefix(f"{package}.")
        if path is None or (inner == key and package not in ("", "_global_")):
            continue
        root = yaml.compose(path.read_text(encoding="utf-8"))
        found = _lookup(root, inner.split("."))
        if found is not None:
            text = found.value if isinstance(found, yaml.ScalarNode) else "..."
            yield Origin(f"{path}:{found.start_mark.line + 1}", text)


def _file(config_path: str, overrides: Sequence[str]) -> Path | None:
    shipped = shipped_folder("conf") / f"{config_path}.yaml"
    if shipped.is_file():
        return shipped
    group, _, name = config_path.rpartition("/")
    searched = [o for o in overrides if o.startswith("hydra.searchpath")]
    return options(group, searched).get(name)


def _lookup(node: yaml.Node | None, path: list[str]) -> yaml.Node | None:
    for part in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for name, value in node.value if name.value == part), None)
    return node


def _in_overrides(key: str, overrides: Sequence[str]) -> Iterator[Origin]:
    for override in overrides:
        name, _, value = override.lstrip("+").partition("=")
        if name == key:
            yield Origin(f"command line: {override}", value)
