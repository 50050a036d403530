"""From an import path to an object, for paths that a configuration may name."""

import importlib
import inspect
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rlfactory.source import TargetError

PLUGINS = "rlfactory.conf"
# Only packages that hold components: were all of ours allowed, a YAML file could name
# `rlfactory.targets.instantiate`, which calls whatever its arguments say.
_ROOTS = (
    "rlfactory.advantage",
    "rlfactory.algo",
    "rlfactory.dynamics",
    "rlfactory.hardware",
    "rlfactory.model",
    "rlfactory.prompts",
    "rlfactory.regularizer",
    "rlfactory.reward",
    "rlfactory.run.loggers",
    "bitsandbytes.optim",
    "torch.optim",
)

_EXTRAS = {"bitsandbytes": "gpu"}


def where_to_get(target: str) -> str:
    """How to install the package of a target that can't be found, or where it was looked for."""
    extra = _EXTRAS.get(target.split(".")[0])
    if extra is None:
        return "the current folder is searched too, last"
    return f"type pip install 'rlfactory[{extra}]'"


def allowed_roots(trust: Sequence[str] = ()) -> list[str]:
    """The packages that a `_target_` may come from: ours, optimisers, plug-ins, trusted ones."""
    return [*_ROOTS, *(package.split(".")[0] for package in plugins().values()), *trust]


@cache
def plugins() -> Mapping[str, str]:
    """The installed plug-ins: name and package of configuration."""
    return {entry.name: entry.value for entry in entry_points(group=PLUGINS)}


def is_allowed(target: str, trust: Sequence[str] = ()) -> bool:
    """Whether a target lies below an allowed root; no trust opens the rest of our own package."""
    others = [package for package in trust if package != "rlfactory"]
    return _below(target, allowed_roots(others))


def import_from_here() -> None:
    """Let targets be modules in the current folder, after everything that is installed."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def locate(target: str, key: str) -> Any:
    """The class or function at an import path; errors name the configuration's key."""
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise TargetError(f"{key}._target_={target} can't be imported: {error}") from error
    if _below(target, _ROOTS) and not _is_component(found):
        raise TargetError(f"{key}._target_={target} is no component: no class is defined there")
    return found


def _below(target: str, roots: Sequence[str]) -> bool:
    return any(target.startswith(f"{root}.") for root in roots)


def _is_component(found: object) -> bool:
    """Whether an object below our roots is what they are open for: a class that is defined there,
    not a function and not what a module merely imports. Plug-ins and trusted packages offer what
    they like.
    """
    return isinstance(found, type) and _below(f"{found.__module__}.", _ROOTS)


def _is_node(value: object) -> bool:
    return isinstance(value, Mapping) and "_target_" in value


def holds_nodes(value: object) -> bool:
    """Whether a value is a node, or a mapping or list that has one somewhere inside."""
    inside = value.values() if isinstance(value, Mapping) else value
    return _is_node(value) or (
        isinstance(inside, Collection)
        and not isinstance(inside, str)
        and any(map(holds_nodes, inside))
    )


def instantiate(node: Mapping[str, Any], key: str, **available: object) -> Any:
    """Call a node's target with the node's other values and what only the run knows.

    Positional parameters name what a target takes of `available`. Nodes among the values, also
    those inside mappings and lists, are made first, in the same way.
    """
    target = locate(node["_target_"], key)
    values = {
        name: _made(value, f"{key}.{name}", available)
        for name, value in node.items()
        if name != "_target_"
    }
    return target(**_wanted(target, available), **values)


def _made(value: object, key: str, available: Mapping[str, object]) -> Any:
    """A value of a node, with objects in the place of the nodes inside it."""
    if not holds_nodes(value):
        return value
    if isinstance(value, Mapping):
        if _is_node(value):
            return instantiate(value, key, **available)
        return {name: _made(inner, f"{key}.{name}", available) for name, inner in value.items()}
    assert isinstance(value, Sequence)
    return [_made(inner, f"{key}.{i}", available) for i, inner in enumerate(value)]


def _wanted(target: Any, available: Mapping[str, object]) -> dict[str, object]:
    """What the positional parameters of a target name of `available`."""
    if not available:
        return {}
    parameters = inspect.signature(target).parameters.values()
    names = {p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    return {name: value for name, value in available.items() if name in names}
