"""Functions of a component's class that a plan calls, compiled from source: nothing is imported."""

import ast
from collections.abc import Callable
from functools import cache
from typing import Any

from rlfactory.config.schema.signature import lineage
from rlfactory.config.schema.static_names import TargetError, find_definition, statements
from rlfactory.utils.live_objects import is_reference, resolve


def class_function(target: str, name: str) -> Callable[..., Any] | None:
    """A static method of a component's class by its import path; None where it has none.

    Importing the class's file would import torch, so the method may use builtins and what it
    imports itself, without torch.
    """
    if is_reference(target):
        return getattr(resolve(target), name, None)
    return _compiled(target, name)


@cache
def _compiled(target: str, name: str) -> Callable[..., Any] | None:
    module, _, kind = target.rpartition(".")
    where, node = find_definition(module, kind)
    if not isinstance(node, ast.ClassDef):
        raise TargetError(f"{target} is no class")
    for owner, ancestor in lineage(where, node):
        for item in statements(ancestor.body):
            if isinstance(item, ast.FunctionDef) and item.name == name:
                return _function(item, owner.name)
    return None


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
