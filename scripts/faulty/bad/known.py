"""What can be configured, read from `conf/` and the signatures: the ground that cases stand on."""

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.key_reference import argument_text
from rlfactory.config.options import options
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.config.schema.root import COMPONENTS, RootConfig
from rlfactory.config.schema.signature import read_signature

CONF = Path(__file__).parents[3] / "conf"
MODELS = ("tiny_sd3", "tiny_flux", "tiny_sd", "tiny_gpt2")


@dataclass(frozen=True)
class Leaf:
    """A key, what it is in a sound configuration, its annotation and what its comment promises."""

    key: str
    value: object
    kind: Any
    comment: str


def context(rng: random.Random) -> tuple[str, ...]:
    """Choices that can run, to which one fault is then added."""
    while True:
        words = (f"model={rng.choice(MODELS)}", f"algo={rng.choice(sorted(options('algo')))}")
        if config(words) is not None:
            return words if rng.random() < 0.7 else ()


@cache
def config(words: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The configuration of some choices; None where they can't run."""
    try:
        return plan_from_words(*words).config
    except PlanError:
        return None


@cache
def leaves(words: tuple[str, ...]) -> tuple[Leaf, ...]:
    """All keys that have an annotation."""
    values = config(words)
    assert values is not None
    found = [*_settings(values, RootConfig, "")]
    for group in COMPONENTS:
        found += _component(values[group], group)
    return tuple(found)


def names(words: tuple[str, ...], key: str) -> tuple[str, ...]:
    """The keys that stand beside `key`, which no slip of it may be."""
    node: Any = config(words)
    for part in key.split(".")[:-1]:
        node = node[part]
    return tuple(node)


def _settings(values: Mapping[str, Any], schema: Any, prefix: str) -> Iterator[Leaf]:
    for field in fields(schema):
        key, value = f"{prefix}{field.name}", values[field.name]
        if isinstance(field.type, type) and is_dataclass(field.type):
            yield from _settings(value, field.type, f"{key}.")
        else:
            yield Leaf(key, value, field.type, _promises().get(("", key), ""))


def _component(node: Mapping[str, Any], key: str) -> Iterator[Leaf]:
    signature = read_signature(node["_target_"])
    for name, value in node.items():
        if isinstance(value, Mapping) and "_target_" in value:
            yield from _component(value, f"{key}.{name}")
        elif name in signature.parameters:
            target = node["_target_"]
            comment = _promises().get((target, name)) or argument_text(target, name)
            yield Leaf(f"{key}.{name}", value, signature.parameters[name].kind, comment)


@cache
def _promises() -> Mapping[tuple[str, str], str]:
    """The comment of each value in `conf/`, by its target (or none: the root) and name."""
    found: dict[tuple[str, str], str] = {}
    for path in sorted(CONF.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if path.parent.name not in ("experiment", "peer", "recipe"):
            _comments(yaml.compose(text), text.splitlines(), "", "", found)
    return found


def _comments(
    node: Any, lines: list[str], owner: str, prefix: str, found: dict[tuple[str, str], str]
) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    own = next((v.value for k, v in node.value if k.value == "_target_"), None)
    owner, prefix = (own, "") if own else (owner, prefix)
    for name, value in node.value:
        key = f"{prefix}{name.value}"
        if isinstance(value, yaml.MappingNode):
            _comments(value, lines, owner, f"{key}.", found)
        elif "#" in lines[value.end_mark.line]:
            said = re.split(r"\s#\s", lines[value.end_mark.line])[-1]
            found.setdefault((owner, key), said)
