"""Functions of a component's class that a plan calls, compiled from source: nothing is imported."""

import ast
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from rlfactory.config.schema.signature import lineage, read_signature
from rlfactory.config.schema.static_names import TargetError, find_definition, statements
from rlfactory.config.schema.targets import is_allowed
from rlfactory.utils.live_objects import is_reference, resolve


def class_function(target: str, name: str, trust: Sequence[str] = ()) -> Callable[..., Any] | None:
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
    plain = ast.parse(ast.unparse(node)).body[0]
    assert isinstance(plain, ast.FunctionDef)
    plain.decorator_list, plain.returns = [], None
    for argument in ast.walk(plain.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    values: dict[str, Any] = {"__name__": module}
    exec(compile(ast.Module([plain], []), f"<{module}.{node.name}>", "exec"), values)  # noqa: S102
    found: Callable[..., Any] = values[node.name]
    return found
