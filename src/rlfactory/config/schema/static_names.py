"""Static name resolution: finds where a name is defined in source, without imports."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rlfactory.utils.current_folder import find_source


class TargetError(ValueError):
    """A target that can't be found or is no component."""


@dataclass(frozen=True)
class Module:
    """A module's name and its parsed source."""

    name: str
    tree: ast.Module
    is_package: bool


def find_definition(module_name: str, name: str) -> tuple[Module, ast.stmt]:
    """The statement that defines what a module exports, and the module where it stands."""
    where, node = resolve_name(load(module_name), name)
    while isinstance(value := assigned(node), ast.Name | ast.Attribute):
        where, node = resolve_expression(where, value)
    if node is None:
        raise TargetError(f"{module_name} has no {name}")
    return where, node


def resolve_name(module: Module, name: str) -> tuple[Module, ast.stmt | None]:
    """The statement that defines a name, followed through imports as far as there is source."""
    for item in statements(module.tree.body):
        if name in defined(item):
            return module, item
        if isinstance(item, ast.ImportFrom):
            for alias in item.names:
                if (alias.asname or alias.name) == name:
                    return _resolve_in(absolute_module(module, item), alias.name, module)
                if alias.name == "*":
                    where, node = _resolve_in(absolute_module(module, item), name, module)
                    if node is not None:
                        return where, node
    return module, None


def resolve_expression(module: Module, node: ast.expr) -> tuple[Module, ast.stmt | None]:
    """The meaning of a name, or of a name in an imported module (`base.Reward`)."""
    if isinstance(node, ast.Name):
        return resolve_name(module, node.id)
    if isinstance(node, ast.Attribute):
        prefix = ast.unparse(node.value)
        for item in statements(module.tree.body):
            for alias in item.names if isinstance(item, ast.Import | ast.ImportFrom) else ():
                if (alias.asname or alias.name) == prefix:
                    where = alias.name
                    if isinstance(item, ast.ImportFrom):
                        where = f"{absolute_module(module, item)}.{where}"
                    return _resolve_in(where, node.attr, module)
    return module, None


def assigned(node: ast.stmt | None) -> ast.expr | None:
    """The value of an assignment."""
    return node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in order, those inside `if` and `try` included, one name each."""
    for item in body:
        match item:
            case ast.If() | ast.Try():
                handlers = item.handlers if isinstance(item, ast.Try) else []
                handled = [s for handler in handlers for s in handler.body]
                yield from statements([*item.body, *handled, *item.orelse])
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                yield from (ast.Assign([n], v) for n, v in zip(names, values, strict=False))
            case _:
                yield item


def absolute_module(module: Module, item: ast.ImportFrom) -> str:
    """The full name of the module that a `from ... import` reads."""
    parts = module.name.split(".")
    kept = parts[: len(parts) - item.level + int(module.is_package)] if item.level else []
    return ".".join([*kept, *([item.module] if item.module else [])])


def defined(item: ast.stmt) -> set[str]:
    """The names that a statement gives a value, those that it imports aside."""
    if isinstance(item, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {item.name}
    targets = item.targets if isinstance(item, ast.Assign) else []
    if isinstance(item, ast.AnnAssign):
        targets = [item.target]
    names = (node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}


def _resolve_in(module_name: str, name: str, importer: Module) -> tuple[Module, ast.stmt | None]:
    if module_name == "typing":  # long, and its names need no resolution
        return importer, None
    try:
        return resolve_name(load(module_name), name)
    except (TargetError, RecursionError):
        return importer, None


@cache
def load(name: str) -> Module:
    """A module's source, parsed."""
    path = module_file(name)
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise TargetError(f"{path} is no Python: {error}") from error
    return Module(name, tree, path.name == "__init__.py")


def module_file(name: str) -> Path:
    """The file of a module. Only its top package is looked up, so that nothing is imported."""
    top, *rest = name.split(".")
    spec = find_source(top) if top else None
    if spec is None:
        raise TargetError(f"there is no package {top!r} to import")
    if not rest and spec.origin and Path(spec.origin).suffix == ".py":
        return Path(spec.origin)
    for location in spec.submodule_search_locations or []:
        base = Path(location).joinpath(*rest)
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path
    raise TargetError(f"there is no module {name}")
