"""What a `_target_` takes, read from its source: nothing is imported to check a configuration.

A constructor's parameters are configuration, all but those that the run hands over by position.
"""

import ast
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rlfactory import types
from rlfactory.source import (
    Module,
    TargetError,
    assigned,
    find,
    resolve,
    resolve_expression,
    statements,
)

# positional, filled by `build`
HANDED_OVER = {
    *("advantage", "device", "dynamics", "loss_scaling", "memory", "params", "precision"),
    *("process", "prompt_cache", "seed", "sigmas", "times"),
}
_BUILTINS: Mapping[str, Any] = {
    "Any": Any,
    "None": None,
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "list": list[Any],
    "tuple": list[Any],
    "dict": dict,
}


class _Unknown:
    """A type of which no definition was found. No YAML value is one: in a union it drops out."""


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


@cache
def read(target: str) -> Signature:
    """The signature of a class or function by its import path; TargetError if there is none."""
    module_name, _, name = target.rpartition(".")
    module, node = find(module_name, name)
    if isinstance(node, ast.FunctionDef):
        return Signature(name, _parameters(module, node), {}, node.args.kwarg is not None)
    if not isinstance(node, ast.ClassDef):
        raise TargetError(f"{target} is neither a class nor a function")
    lineage = _lineage(module, node)
    traits: dict[str, Any] = {}
    for owner, ancestor in reversed(lineage):
        traits |= _literals(owner, ancestor)
    for owner, ancestor in lineage:
        for item in statements(ancestor.body):
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                takes_any = item.args.kwarg is not None
                return Signature(name, _parameters(owner, item), traits, takes_any)
    found: dict[str, Parameter] = {}
    for owner, ancestor in reversed(lineage):
        if any("dataclass" in ast.unparse(line) for line in ancestor.decorator_list):
            found |= _dataclass_fields(owner, ancestor)
    return Signature(name, found, traits)


def _lineage(module: Module, node: ast.ClassDef) -> list[tuple[Module, ast.ClassDef]]:
    """A class and those of its ancestors whose source can be found, nearest first."""
    found = [(module, node)]
    if module.name.startswith("torch."):  # complete by itself: an optimiser, beneath long sources
        return found
    for base in node.bases:
        named = base.value if isinstance(base, ast.Subscript) else base
        where, ancestor = resolve_expression(module, named)
        if isinstance(ancestor, ast.ClassDef) and ancestor is not node:
            found += _lineage(where, ancestor)
    return found


def _literals(module: Module, node: ast.ClassDef) -> dict[str, Any]:
    """The literals that a class body assigns; a name stands for the constant of that name."""
    values: dict[str, Any] = {}
    for item in node.body:
        value = assigned(item)
        if isinstance(value, ast.Name):
            value = assigned(resolve(module, value.id)[1])
        targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
        for target in targets if value is not None else ():
            if isinstance(target, ast.Name):
                with suppress(ValueError):
                    values[target.id] = ast.literal_eval(value)  # type: ignore[arg-type]
    return values


def _parameters(module: Module, node: ast.FunctionDef) -> dict[str, Parameter]:
    """Parameters by keyword, and by position those that the run does not hand over."""
    args = node.args
    optional = len(args.args) - len(args.defaults)
    both = [(a, i < optional) for i, a in enumerate(args.args)]
    only = [(a, d is None) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    taken = [(a, required) for a, required in both if a.arg not in HANDED_OVER | {"self"}] + only
    return {a.arg: Parameter(_known_type(module, a.annotation), needed) for a, needed in taken}


def _dataclass_fields(module: Module, node: ast.ClassDef) -> dict[str, Parameter]:
    found = {}
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        options = _field_options(item.value)
        if {"ClassVar", "KW_ONLY"} & set(_names(item.annotation)) or "init" in options:
            continue
        given = bool({"default", "default_factory", "value"} & options)
        found[item.target.id] = Parameter(_known_type(module, item.annotation), not given)
    return found


def _names(node: ast.expr) -> Iterator[str]:
    return (n.id if isinstance(n, ast.Name) else getattr(n, "attr", "") for n in ast.walk(node))


def _names_of_bases(node: ast.ClassDef) -> list[str]:
    return [name for base in node.bases for name in _names(base)]


def _field_options(value: ast.expr | None) -> set[str | None]:
    """The keywords of `field(...)`; a plain default counts as `value`."""
    if isinstance(value, ast.Call) and "field" in _names(value.func):
        return {keyword.arg for keyword in value.keywords}
    return set() if value is None else {"value"}


def _known_type(module: Module, node: ast.expr | None) -> Any:
    kind = _type(module, node)
    return Any if kind is _Unknown else kind


def _type(module: Module, node: ast.expr | None) -> Any:
    """The type that an annotation names; _Unknown where its definition is not found."""
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=str(text)):
            return _type(module, ast.parse(text, mode="eval").body)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _named_type(module, name, node)
        case ast.BinOp(op=ast.BitOr()):
            return _union([_type(module, node.left), _type(module, node.right)])
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name) as of, slice=inner):
            kind = _generic(module, name, inner)
            return _named_type(module, name, of) if kind is _Unknown else kind
    return _Unknown


def _generic(module: Module, name: str, inner: ast.expr) -> Any:
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name == "Literal":
        return typing.Literal[tuple(ast.literal_eval(item) for item in items)]
    if name in ("Optional", "Union"):
        nothing = [None] if name == "Optional" else []
        return _union([*(_type(module, item) for item in items), *nothing])
    if name == "Annotated":
        bounds = [_interval(mark) for mark in items[1:] if isinstance(mark, ast.Call)]
        return typing.Annotated[_known_type(module, items[0]), *bounds, None]
    if name in ("dict", "Dict", "Mapping") and len(items) == 2:
        return dict[_known_type(module, items[0]), _known_type(module, items[1])]  # type: ignore[misc]
    if name in ("list", "List", "Sequence", "Iterable"):
        return list[_known_type(module, inner)]  # type: ignore[misc]
    return list[Any] if name in ("tuple", "Tuple") else _Unknown


def _interval(mark: ast.Call) -> types.Interval | None:
    if ast.unparse(mark.func).rpartition(".")[2] != "Interval":
        return None
    return types.Interval(**{str(k.arg): ast.literal_eval(k.value) for k in mark.keywords})


def _union(kinds: list[Any]) -> Any:
    known = [kind for kind in kinds if kind is not _Unknown]
    if not known:
        return _Unknown
    return Any if Any in known else typing.Union[tuple(known)]  # noqa: UP007


def _named_type(module: Module, name: str, node: ast.expr) -> Any:
    if name in _BUILTINS:
        return _BUILTINS[name]
    if name == "Tensor":  # no need to read the whole of torch's first file
        return _Unknown
    where, found = resolve_expression(module, node)
    if isinstance(found, ast.ClassDef) and "ABC" in _names_of_bases(found):
        return types.Component
    value = assigned(found)
    return _Unknown if value is None else _type(where, value)
