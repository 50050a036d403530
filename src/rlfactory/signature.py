"""What a `_target_` takes, read from its source: nothing heavy is imported to check a
configuration.

A constructor's keyword-only parameters are configuration. Its positional ones are handed over when
the run is built. Where a class marks none as keyword-only (`torch.optim`, third parties), all but
the unresolvable are configuration.
"""

import ast
import importlib.util
import typing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rlfactory import types


class _Unknown:
    """A type whose definition was not found. No YAML value can be one, so in a union it drops
    out.
    """


class TargetError(ValueError):
    """A target that can't be found; the message says where the search ended."""


@dataclass(frozen=True)
class Parameter:
    """A parameter's type, as far as it is known, and whether it may be left out."""

    kind: Any
    required: bool


@dataclass(frozen=True)
class Signature:
    """What a target takes by keyword, and the literals in its class body."""

    name: str
    parameters: dict[str, Parameter]
    traits: dict[str, Any] = field(default_factory=dict)
    takes_any: bool = False


@dataclass(frozen=True)
class _Module:
    name: str
    tree: ast.Module
    is_package: bool


@cache
def read(target: str) -> Signature:
    """The signature of a class or function by its import path."""
    module_name, _, name = target.rpartition(".")
    module, node = _find(module_name, name)
    if isinstance(node, ast.FunctionDef):
        parameters, takes_any = _parameters(module, node, skip_first=False)
        return Signature(name, parameters, {}, takes_any)
    if not isinstance(node, ast.ClassDef):
        raise TargetError(f"{target} is neither a class nor a function")
    lineage = _lineage(module, node)
    traits: dict[str, Any] = {}
    for _, ancestor in reversed(lineage):
        traits |= _literals(ancestor)
    for owner, ancestor in lineage:
        for item in ancestor.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                parameters, takes_any = _parameters(owner, item, skip_first=True)
                return Signature(name, parameters, traits, takes_any)
    return Signature(name, _dataclass_fields(module, node), traits)


def _lineage(module: _Module, node: ast.ClassDef) -> list[tuple[_Module, ast.ClassDef]]:
    """A class and those of its ancestors whose source can be found, nearest first."""
    found = [(module, node)]
    for base in node.bases:
        if isinstance(base, ast.Name):
            where, ancestor = _resolve(module, base.id)
            if isinstance(ancestor, ast.ClassDef):
                found += _lineage(where, ancestor)
    return found


def _literals(node: ast.ClassDef) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for item in node.body:
        target = item.targets[0] if isinstance(item, ast.Assign) else None
        if isinstance(item, ast.AnnAssign):
            target = item.target
        value = getattr(item, "value", None)
        if isinstance(target, ast.Name) and value is not None:
            try:
                values[target.id] = ast.literal_eval(value)
            except ValueError:
                values[target.id] = _imported_constant(value)
    return values


def _imported_constant(value: ast.expr) -> str | None:
    """A name such as OLD stands for a constant; its lower case is what it holds by convention."""
    return value.id.lower() if isinstance(value, ast.Name) else None


def _dataclass_fields(module: _Module, node: ast.ClassDef) -> dict[str, Parameter]:
    return {
        item.target.id: Parameter(_known_type(module, item.annotation), item.value is None)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        if "ClassVar" not in ast.dump(item.annotation)
    }


def _parameters(
    module: _Module, node: ast.FunctionDef, *, skip_first: bool
) -> tuple[dict[str, Parameter], bool]:
    found = {
        a.arg: Parameter(_known_type(module, a.annotation), default is None)
        for a, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    }
    positional = node.args.args[1:] if skip_first else node.args.args
    if not found or not module.name.startswith("rlfactory."):
        first_default = len(positional) - len(node.args.defaults)
        found |= {
            a.arg: Parameter(_known_type(module, a.annotation), False)
            for i, a in enumerate(positional)
            if i >= first_default
        }
    return found, node.args.kwarg is not None


def _known_type(module: _Module, node: ast.expr | None) -> Any:
    kind = _type(module, node)
    return Any if kind is _Unknown else kind


def _type(module: _Module, node: ast.expr | None) -> Any:
    """The type that an annotation names; Any where it can't be known without importing more."""
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=str(text)):
            return _type(module, ast.parse(text, mode="eval").body)
        case ast.Name(id=name):
            return _named_type(module, name)
        case ast.BinOp(op=ast.BitOr()):
            return _union(_type(module, node.left), _type(module, node.right))
        case ast.Subscript(value=ast.Name(id="Literal"), slice=options):
            return typing.Literal[ast.literal_eval(options)]
        case ast.Subscript(value=ast.Name(id=("list" | "List" | "Sequence")), slice=item):
            return list[_type(module, item)]  # type: ignore[misc]
        case ast.Subscript(value=ast.Name(id=("dict" | "Mapping"))):
            return dict
        case ast.Subscript(value=ast.Name(id="tuple")):
            return list[Any]
        case ast.Subscript(value=ast.Name(id="Optional"), slice=item):
            return _union(_type(module, item), None)
    return _Unknown


def _union(left: Any, right: Any) -> Any:
    known = [kind for kind in (left, right) if kind is not _Unknown]
    if not known:
        return _Unknown
    return Any if Any in known else typing.Union[tuple(known)]  # noqa: UP007


def _named_type(module: _Module, name: str) -> Any:
    builtin = {
        "Any": Any,
        "int": int,
        "float": float,
        "bool": bool,
        "str": str,
        "list": list[Any],
        "dict": dict,
    }
    if name in builtin:
        return builtin[name]
    if hasattr(types, name) and module.name.startswith("rlfactory."):
        return getattr(types, name)
    where, node = _resolve(module, name)
    return _type(where, node.value) if isinstance(node, ast.Assign) else _Unknown


def _find(module_name: str, name: str) -> tuple[_Module, ast.stmt]:
    module = _module(module_name)
    where, node = _resolve(module, name)
    if node is None:
        raise TargetError(f"{module_name} has no {name}")
    return where, node


def _resolve(module: _Module, name: str) -> tuple[_Module, ast.stmt | None]:
    """The statement that defines a name, followed through imports as far as source can be found."""
    for item in module.tree.body:
        if isinstance(item, ast.ClassDef | ast.FunctionDef) and item.name == name:
            return module, item
        if isinstance(item, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in item.targets
        ):
            return module, item
        if isinstance(item, ast.ImportFrom):
            for alias in item.names:
                if (alias.asname or alias.name) == name:
                    return _follow(module, item, alias.name)
    return module, None


def _follow(module: _Module, item: ast.ImportFrom, name: str) -> tuple[_Module, ast.stmt | None]:
    origin = item.module or ""
    if item.level:
        parts = module.name.split(".")
        kept = parts[: len(parts) - item.level + int(module.is_package)]
        origin = ".".join([*kept, *([origin] if origin else [])])
    try:
        return _resolve(_module(origin), name)
    except TargetError:
        return module, None


@cache
def _module(name: str) -> _Module:
    path = _source(name)
    return _Module(name, ast.parse(path.read_text(encoding="utf-8")), path.name == "__init__.py")


def _source(name: str) -> Path:
    """The file of a module. Only its top package is looked up, so that nothing is imported."""
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top) if top else None
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
