"""The meaning of a key of the configuration: its comment or docstring, its type and default."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.options import is_global, options, packaged_folder
from rlfactory.config.schema.root import COMPONENTS, GROUPS, RootConfig
from rlfactory.config.schema.signature import Parameter, lineage, parameters_of
from rlfactory.config.schema.static_names import TargetError, find_definition
from rlfactory.config.schema.targets import with_defaults
from rlfactory.config.words import typed_value
from rlfactory.utils.data_files import load_yaml, yaml_loader
from rlfactory.utils.dotted_keys import last_part, leaves, value_at
from rlfactory.utils.types import describe

Config = Mapping[str, Any]


@dataclass(frozen=True)
class KeyReference:
    """The documentation of a key.

    Attributes:
        meaning: in words, with units; empty if nothing says it.
        kind: the values that are allowed, in words.
        default: as it is typed; None if it has no default.
    """

    meaning: str
    kind: str
    default: str | None

    def lines(self) -> list[str]:
        """The reference for a terminal."""
        default = "" if self.default is None else f"default {self.default}"
        about = "; ".join(filter(None, [self.kind, default]))
        return [line for line in (self.meaning, about) if line]


def root_file() -> Path:
    """The file of the root's own keys."""
    return packaged_folder("conf") / "config.yaml"


def key_reference(key: str, config: Config, choices: Mapping[str, str]) -> KeyReference:
    """The meaning of a key in a configuration.

    Args:
        key: a dotted key that the configuration has.
        config: the composed values.
        choices: the option chosen of each group.
    """
    group = key.partition(".")[0]
    if group not in COMPONENTS:
        return _reference(key, root_file(), config)
    if group == key:
        return KeyReference(GROUPS[group], f"options: {', '.join(options(group))}", None)
    return _reference(key, options(group).get(choices.get(group, "")), config)


def file_reference(path: Path) -> dict[str, KeyReference]:
    """The keys to which a YAML file gives values, its component's defaults too; what they mean."""
    group = next((part for part in reversed(path.parent.parts) if part in COMPONENTS), "")
    content = with_defaults(_content(path), group)
    own = [f"{group}.{name}" for name in content.get(group, ()) if name != "_target_"]
    inner = [key for key, _ in leaves(content) if key.startswith(f"{group}.")]
    keys = dict.fromkeys([*own, *inner, *comments(path)])
    found = {key: value_at(content, key) for key in keys}
    return {
        key: _reference(key, path, content)
        for key, value in found.items()
        if not isinstance(value, Mapping) or not value
    }


def _reference(key: str, path: Path | None, config: Config) -> KeyReference:
    """The meaning of a key; the file `path` gives its value, `config` has its component."""
    parameter, target = _parameter(key, config)
    meaning = "" if path is None else comments(path).get(key, "")
    meaning = meaning or argument_text(target, last_part(key))
    default = ... if path is None else value_at(_content(path), key, ...)
    if default is ...:
        default = parameter.plain_default
    is_shown = default not in (..., "???") and not (isinstance(default, Mapping) and default)
    kind = parameter.kind
    in_words = "" if kind is Any or is_dataclass(kind) else describe(kind)
    return KeyReference(meaning, in_words, typed_value(default) if is_shown else None)


def _parameter(key: str, config: Config) -> tuple[Parameter, str]:
    """The type and default of a key by annotations, and the target that takes it, if any."""
    unknown = Parameter(Any, required=False)
    node: Any = config
    parameter, target = Parameter(RootConfig, required=True), ""
    for part in key.split("."):
        target = str(node.get("_target_", "")) if isinstance(node, Mapping) else ""
        known = parameters_of(node)  # none of a package that is not installed
        if not target and is_dataclass(parameter.kind):
            known = {f.name: Parameter(f.type, required=True) for f in fields(parameter.kind)}
        parameter = known.get(part, unknown)
        node = node.get(part) if isinstance(node, Mapping) else None
    return parameter, target


@cache
def argument_text(target: str, name: str) -> str:
    """The text on an argument in the docstrings of a class, or of the nearest ancestor."""
    pattern = re.compile(rf"^ {{4}}{re.escape(name)}: (.+(?:\n {{6,}}.+)*)", re.MULTILINE)
    found = next(filter(None, map(pattern.search, _docstrings(target))), None)
    return " ".join(found[1].split()) if found else ""


@cache
def _docstrings(target: str) -> list[str]:
    """Those of a class and its functions, then its ancestors'; of a function its own."""
    module, _, attribute = target.rpartition(".")
    try:
        where, node = find_definition(module, attribute)
    except TargetError:
        return []
    owners = lineage(where, node) if isinstance(node, ast.ClassDef) else [(where, node)]
    return [
        ast.get_docstring(part) or ""
        for _, owner in owners
        for part in ast.walk(owner)
        if isinstance(part, ast.ClassDef | ast.FunctionDef)
    ]


@dataclass(frozen=True)
class Setting:
    """How a file gives a key its value: the line, the value as written there (`...` if it spans
    lines) and the comment on its line.
    """

    line: int
    value: str
    comment: str


def comments(path: Path) -> dict[str, str]:
    """The keys of a YAML file in order, each with the comment on its line; empty without one."""
    given = settings(path).items()
    return {key: found.comment for key, found in given if last_part(key) != "_target_"}


@cache
def settings(path: Path) -> dict[str, Setting]:
    """The keys of a YAML file in order, and how each has its value."""
    text = path.read_text(encoding="utf-8")
    return dict(_settings(yaml.compose(text, yaml_loader()), _prefix(path), text))


def _settings(node: yaml.Node | None, prefix: str, text: str) -> Iterator[tuple[str, Setting]]:
    for name, value in node.value if isinstance(node, yaml.MappingNode) else ():
        key = f"{prefix}{name.value}"
        if key in ("defaults", "hydra"):
            continue
        mapping = isinstance(value, yaml.MappingNode) and value.value
        rest = text[(name if mapping else value).end_mark.index :].partition("\n")[0]
        comment = re.search(r"(?:^|\s)#\s*(.+)$", rest)
        written = text[value.start_mark.index : value.end_mark.index]
        shown = "..." if "\n" in written else written
        line = value.start_mark.line + 1
        yield key, Setting(line, shown, comment[1].strip() if comment else "")
        yield from _settings(value, f"{key}.", text)


def _prefix(path: Path) -> str:
    """The key that those of a file lie below: its group, unless they begin at the root."""
    is_root = path == root_file() or is_global(path)
    return "" if is_root else f"{path.parent.name}."


@cache
def _content(path: Path) -> dict[str, Any]:
    """The values that a file gives, from the root on."""
    content = load_yaml(path.read_text(encoding="utf-8"))
    content = content if isinstance(content, dict) else {}
    return {path.parent.name: content} if _prefix(path) else content
