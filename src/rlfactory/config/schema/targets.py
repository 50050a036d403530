"""Targets: which import paths a configuration may name, their defaults and functions that a plan
calls without importing them, and building objects from them.
"""

import ast
import importlib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from rlfactory.config.problems import PlanError, Problem
from rlfactory.config.schema.signature import (
    constructor_parameters,
    lineage,
    parameters_of,
    read_signature,
)
from rlfactory.config.schema.static_names import TargetError, find_definition, statements
from rlfactory.utils.current_folder import trusted_packages
from rlfactory.utils.errors import UserError
from rlfactory.utils.live_objects import is_reference, resolve

PLUGINS = "rlfactory.conf"
OPTIMIZERS = ("bitsandbytes.optim", "torch.optim")
# Only packages that hold components: were all of ours allowed, a YAML file could name
# `rlfactory.config.schema.targets.instantiate`, which calls whatever its arguments say.
_WITH_COMPONENTS = (
    *("algo", "dynamics", "engine", "hardware", "model", "prompts", "regularizer", "reward"),
    *("run.loggers", "optimizer"),
)
ALLOWED_PACKAGES = (*(f"rlfactory.{name}" for name in _WITH_COMPONENTS), *OPTIMIZERS)


def _installed_roots() -> list[str]:
    return [*ALLOWED_PACKAGES, *(package.split(".")[0] for package in plugins().values())]


@cache
def plugins() -> Mapping[str, str]:
    """The installed plug-ins: name and package of configuration."""
    return {entry.name: entry.value for entry in entry_points(group=PLUGINS)}


def is_allowed(target: str, trust: Sequence[str] = ()) -> bool:
    """Whether a target lies below an allowed root, or is a live object; no trust opens the rest of
    our own package.
    """
    roots = [*_installed_roots(), *trust, *trusted_packages()]
    return is_reference(target) or _below(target, [root for root in roots if root != "rlfactory"])


def trusted_by(config: Mapping[str, Any]) -> list[str]:
    """The packages that a configuration's `trust` names; none where it is no list."""
    trust = config.get("trust")
    return [str(package) for package in trust] if isinstance(trust, list) else []


def is_foreign_optimizer(target: str) -> bool:
    """Whether a target is another library's optimiser, which has more options than a file shows."""
    return _below(target, OPTIMIZERS)


def is_installed(target: str) -> bool:
    """Whether a target is of this package, an optimiser's or a plug-in's, or a live object."""
    return is_reference(target) or _below(target, _installed_roots())


def locate(target: str, key: str) -> Any:
    """The class or function at an import path, or a live object; errors name the key."""
    if is_reference(target):
        return resolve(target)
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise TargetError(f"{key}._target_={target} can't be imported: {error}") from error
    # no function, and nothing that a module of ours only imports; others may offer any callable
    is_class = isinstance(found, type) and _below(f"{found.__module__}.", ALLOWED_PACKAGES)
    if _below(target, ALLOWED_PACKAGES) and not is_class:
        raise TargetError(f"{key}._target_={target} is no component: no class is defined there")
    return found


def _below(target: str, roots: Sequence[str]) -> bool:
    return any(target.startswith(f"{root}.") for root in roots)


def _is_node(value: object) -> bool:
    return isinstance(value, Mapping) and "_target_" in value


def contains_targets(value: object) -> bool:
    """Whether a value is a node, or a mapping or list that has one somewhere inside."""
    inside = value.values() if isinstance(value, Mapping) else value
    return _is_node(value) or (
        isinstance(inside, Collection)
        and not isinstance(inside, str)
        and any(map(contains_targets, inside))
    )


def instantiate(node: Mapping[str, Any], key: str, **available: object) -> Any:
    """Call a node's target with the node's other values.

    Nodes among the values, also inside mappings and lists, are instantiated first.

    Args:
        node: a mapping with a `_target_`.
        key: the node's key, for error messages.
        available: run-time objects; a target gets those that its positional parameters name.

    Raises:
        PlanError: the target can't be called with these values.
    """
    target = locate(node["_target_"], key)
    if is_reference(node["_target_"]) and not isinstance(target, type):
        return target  # an instance, which needs nothing more
    values = {
        name: _instantiate_inside(value, f"{key}.{name}", available)
        for name, value in node.items()
        if name != "_target_"
    }
    try:
        return target(**_runtime_arguments(target, available), **values)
    except UserError:
        raise
    except (TypeError, ValueError, LookupError) as error:
        # torch's optimizers, say, and a configuration that was edited after its check
        message = f"{node['_target_']} does not take these values: {type(error).__name__}: {error}"
        raise PlanError([Problem(key, message)]) from error


def _instantiate_inside(value: object, key: str, available: Mapping[str, object]) -> Any:
    """A value with the nodes inside it replaced by objects."""
    if not contains_targets(value):
        return value
    if isinstance(value, Mapping) and _is_node(value):
        return instantiate(value, key, **available)
    assert isinstance(value, Mapping | Sequence)
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
    made = {name: _instantiate_inside(v, f"{key}.{name}", available) for name, v in pairs}
    return made if isinstance(value, Mapping) else [*made.values()]


def _runtime_arguments(target: Any, available: Mapping[str, object]) -> dict[str, object]:
    """The `available` objects that a target's positional parameters name."""
    if not available:
        return {}
    parameters = [*inspect.signature(target).parameters.values()]
    if isinstance(target, type):
        parameters = constructor_parameters(target)
    names = {p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    return {name: value for name, value in available.items() if name in names}


def with_defaults(content: dict[str, Any], group: str) -> dict[str, Any]:
    """The content of a file of a `group`, with all options of its component, in their order.

    So every option is composed: shown, overridden without `+`, and written down. The content itself
    of a file that builds on another of its group, which has them already.
    """
    whole = "_target_" in content
    node = content if whole else content.get(group)
    if not isinstance(node, Mapping) or _builds_on_another(content.get("defaults"), group):
        return content
    filled = _filled(node)
    return filled if whole else {**content, group: filled}


def _filled(node: Mapping[str, Any]) -> dict[str, Any]:
    """A node, and those inside it, with all options of their classes; the plan reports a class that
    can't be read.
    """
    given = {k: _filled(v) if isinstance(v, Mapping) else v for k, v in node.items()}
    target = node.get("_target_")
    if not isinstance(target, str) or is_foreign_optimizer(target):
        return given
    options = {
        name: given.pop(name, parameter.plain_default)
        for name, parameter in parameters_of(node).items()
        if name in given or parameter.plain_default is not ...
    }
    return {"_target_": given.pop("_target_"), **options, **given}


def _builds_on_another(defaults: object, group: str) -> bool:
    """Whether a list of defaults merges another file of the group beneath."""
    names = [
        str(name).lstrip("/").partition("@")[0]
        for entry in (defaults if isinstance(defaults, list) else ())
        for name in (entry if isinstance(entry, Mapping) else [f"{group}/{entry}"])
    ]
    return any(n.partition("/")[0] == group and n != f"{group}/_self_" for n in names)


def class_function(target: str, name: str, trust: Sequence[str]) -> Callable[..., Any] | None:
    """A static method of a component's class by its import path; None where it has none, or where
    code from there may not run.

    Importing the class's file would import torch, so the method may use builtins and what it
    imports itself, without torch. Its first argument is a node's options; those that a subclass
    doesn't take have the defaults of the class that the method stands in. An instance that was
    handed over has checked its own.
    """
    if not is_reference(target):
        return _compiled(target, name) if is_allowed(target, trust) else None
    kind = resolve(target)
    ancestors = kind.__mro__ if isinstance(kind, type) else ()
    owner = next((k for k in ancestors if name in vars(k)), None)
    if owner is None:
        return None
    return _completed(getattr(kind, name), f"{owner.__module__}.{owner.__qualname__}")


@cache
def _compiled(target: str, name: str) -> Callable[..., Any] | None:
    module, _, kind = target.rpartition(".")
    where, node = find_definition(module, kind)
    if not isinstance(node, ast.ClassDef):
        return None
    for owner, ancestor in lineage(where, node):
        for item in statements(ancestor.body):
            if isinstance(item, ast.FunctionDef) and item.name == name:
                return _completed(_function(item, owner.name), f"{owner.name}.{ancestor.name}")
    return None


def _completed(function: Callable[..., Any], owner: str) -> Callable[..., Any]:
    """`function`, given the defaults of its class for the options that are missing."""
    try:
        parameters = read_signature(owner).parameters
    except TargetError:  # a class of a notebook
        return function
    defaults = {name: p.plain_default for name, p in parameters.items()}
    return lambda options, *others: function({**defaults, **options}, *others)


def _function(node: ast.FunctionDef, module: str) -> Callable[..., Any]:
    plain = deepcopy(node)
    plain.decorator_list, plain.returns = [], None
    for argument in ast.walk(plain.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    values: dict[str, Any] = {"__name__": module}
    exec(compile(ast.Module([plain], []), f"<{module}.{node.name}>", "exec"), values)  # noqa: S102
    return values[node.name]
