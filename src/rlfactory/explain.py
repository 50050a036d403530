"""Where a value comes from: the files that set a key, in order, and the overrides."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from rlfactory._hydra import CompositionError, Override, defaults_list, folders, parse
from rlfactory.problems import PlanError, key_of, unknown_key
from rlfactory.request import SHARED, compose_request, searched
from rlfactory.settings import COMPONENTS


@dataclass(frozen=True)
class Origin:
    """A place that sets a key, and what to."""

    place: str
    value: str


def explain(key: str, overrides: Sequence[str]) -> tuple[object, list[Origin]]:
    """A key's value and every place that set it; the last one counts."""
    composed = compose_request(overrides)
    if composed.problems:
        raise PlanError(composed.problems)
    value: object = composed.values
    parts = key.split(".")
    for depth, part in enumerate(parts, start=1):
        if not isinstance(value, Mapping) or part not in value:
            known = value if isinstance(value, Mapping) else {}
            raise PlanError([unknown_key(key, known, ".".join(parts[:depth]))])
        value = value[part]
    return value, origins(key, overrides)


def origins(key: str, overrides: Sequence[str]) -> list[Origin]:
    """Every place that sets a key, the last word last."""
    group, _, below = key.partition(".")
    afresh = group in COMPONENTS and any(key_of(o) == f"{group}._target_" for o in overrides)
    in_files = [] if afresh and below and key not in SHARED else _in_files(key, overrides)
    return [*in_files, *_in_overrides(key, parse(overrides))]


def file_of(key: str, overrides: Sequence[str]) -> str | None:
    """The file and line that a key has its value from; None where nothing can be composed."""
    try:
        return next((o.place for o in reversed([*_in_files(key, overrides)])), None)
    except CompositionError:
        return None


def _in_files(key: str, overrides: Sequence[str]) -> Iterator[Origin]:
    places = folders(searched(overrides))
    for config_path, package in defaults_list(overrides):
        files = (folder / f"{config_path}.yaml" for folder in places)
        path = next((file for file in files if file.is_file()), None)
        inside = "" if package == "_global_" else f"{package}." if package else ""
        if path is None or not key.startswith(inside):
            continue
        text = path.read_text(encoding="utf-8")
        found = _lookup(yaml.compose(text), key.removeprefix(inside).split("."))
        if found is not None:
            line, source = found.start_mark.line + 1, _source(found, text)
            yield Origin(f"{path}:{line}", source)


def _source(node: yaml.Node, text: str) -> str:
    """A value as it is written, where it fits on a line."""
    written = text[node.start_mark.index : node.end_mark.index]
    return "..." if "\n" in written else written


def _lookup(node: yaml.Node | None, path: Sequence[str]) -> yaml.Node | None:
    """The node at a path; a mapping is where its key stands."""
    for part in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for name, value in node.value if name.value == part), None)
    return node


def _in_overrides(key: str, overrides: Sequence[Override]) -> Iterator[Origin]:
    for override in overrides:
        if override.key_or_group == key and "=" in (line := override.input_line or ""):
            yield Origin(f"command line: {line}", line.partition("=")[2])
