"""Signatures of `_target_`s, read from source: checking a configuration imports nothing.

A constructor's parameters are configuration, except the run-time objects that it takes by position.
"""

import ast
import inspect
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rlfactory.config.schema.static_names import (
    Module,
    TargetError,
    assigned,
    find_definition,
    resolve_expression,
    resolve_name,
    statements,
)
from rlfactory.utils import types
from rlfactory.utils.live_objects import is_reference, resolve

RUNTIME_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "algo": ("advantage", "dynamics", "reward", "sigmas", "times"),
    "dynamics": ("process",),
    "hardware": ("loss_scaling",),
    "model": ("device", "has_critic", "memory", "precision", "prompt_cache", "seed"),
    "optimizer": ("params", "trained_model"),
    "regularizer": ("dynamics",),
    "reward": ("device",),
}
"""The objects that `train/build.py` passes to constructors by position, of each group: no keys of
the configuration. A constructor names those that it needs."""
_PASSED = {"self"}.union(*RUNTIME_ARGUMENTS.values())
_LITERALS = (str, int, float, bool, tuple, list, dict, frozenset, set, type(None))
_BUILTINS: Mapping[str, Any] = {
    **{kind.__name__: kind for kind in (int, float, bool, str, dict)},
    **{"Any": Any, "None": None, "list": list[Any], "tuple": list[Any]},
}


class _Unknown:
    """Stands for a type without a known definition. No YAML value has it, so unions drop it."""


@dataclass(frozen=True)
class Parameter:
    """A parameter's type, `Any` if unknown, whether it must be given, and its default.

    `default` is `...` where it is not a literal.
    """

    kind: Any
    required: bool
    default: Any = ...

    @property
    def plain_default(self) -> Any:
        """The default as YAML has it: a new list for a tuple; `...` where there is none."""
        return [*self.default] if isinstance(self.default, tuple | list) else deepcopy(self.default)


@dataclass(frozen=True)
class Signature:
    """The keyword parameters of a target, and the literal constants of its class body."""

    name: str
    parameters: dict[str, Parameter]
    class_constants: dict[str, Any] = field(default_factory=dict)
    takes_any: bool = False


def read_signature(target: str) -> Signature:
    """The signature of what an import path or a live object's name names; TargetError if none."""
    if is_reference(target):
        return live_signature(target.partition(":")[2], resolve(target))
    return _read_signature(target)


def live_signature(name: str, value: object) -> Signature:
    """The signature of a class or an instance that was handed over in memory.

    An instance takes no options any more. Types of options are not checked, since annotations may
    be anything in a notebook; the constructor checks its values.
    """
    kind = value if isinstance(value, type) else type(value)
    constants = {
        key: constant
        for ancestor in reversed(kind.__mro__)
        for key, constant in vars(ancestor).items()
        if not key.startswith("_") and isinstance(constant, _LITERALS)
    }
    if not isinstance(value, type):
        # None: one that is not here, and that what is asked for does without
        return Signature(name, {}, constants, takes_any=value is None)
    own = inspect.signature(value).parameters.values()
    takes_any = any(p.kind is p.VAR_KEYWORD for p in own)
    options = {p.name: Parameter(Any, p.default is p.empty) for p in constructor_parameters(value)}
    taken = {option: p for option, p in options.items() if option not in _PASSED}
    return Signature(name, _without_absent(taken, constants), constants, takes_any)


def _without_absent(
    found: Mapping[str, Parameter], constants: Mapping[str, Any]
) -> dict[str, Parameter]:
    """The parameters without those of ancestors that the class says are `absent`."""
    return {name: p for name, p in found.items() if name not in constants.get("absent", ())}


def constructor_parameters(kind: type) -> list[inspect.Parameter]:
    """The parameters of a class, after those of its parent where it passes on `**options`."""
    found: dict[str, inspect.Parameter] = {}
    for ancestor in kind.__mro__[:-1]:  # object takes nothing
        if "__init__" not in vars(ancestor):
            continue
        own = inspect.signature(ancestor).parameters.values()
        named = [p for p in own if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        found = {p.name: p for p in named} | found
        if not any(p.kind is p.VAR_KEYWORD for p in own):
            break
    return [*found.values()]


def _signature_of(node: object) -> Signature:
    """The signature of a node's class; an empty one where it can't be read."""
    with suppress(KeyError, TargetError):
        return read_signature(str(node["_target_"] if isinstance(node, Mapping) else ""))
    return Signature("", {})


def trait(node: object, name: str, default: Any = None) -> Any:
    """A constant of a component's class by its configuration; `default` where it has none."""
    return _signature_of(node).class_constants.get(name, default)


def parameters_of(node: object) -> Mapping[str, Parameter]:
    """The parameters of a component's class; none where it can't be read."""
    return _signature_of(node).parameters


@cache
def _read_signature(target: str) -> Signature:
    module_name, _, name = target.rpartition(".")
    module, node = find_definition(module_name, name)
    if isinstance(node, ast.FunctionDef):
        return Signature(name, _parameters(module, node), {}, node.args.kwarg is not None)
    if not isinstance(node, ast.ClassDef):
        raise TargetError(f"{target} is neither a class nor a function")
    ancestors = lineage(module, node)
    traits: dict[str, Any] = {}
    fields: dict[str, Parameter] = {}
    for owner, ancestor in reversed(ancestors):
        traits |= _literals(owner, ancestor)
        if any("dataclass" in ast.unparse(line) for line in ancestor.decorator_list):
            fields |= _dataclass_fields(owner, ancestor)
    found, passes_on = dict[str, Parameter](), False
    for owner, ancestor in ancestors:
        for item in statements(ancestor.body):
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                found, passes_on = _parameters(owner, item) | found, True
                if item.args.kwarg is None:
                    return Signature(name, _without_absent(found, traits), traits)
    return Signature(name, found if passes_on else fields, traits, takes_any=passes_on)


def lineage(module: Module, node: ast.ClassDef) -> list[tuple[Module, ast.ClassDef]]:
    """A class and those of its ancestors whose source can be found, nearest first."""
    found = [(module, node)]
    # an optimizer: its own source is enough, and its ancestors are long
    if module.name.startswith("torch."):
        return found
    for base in node.bases:
        named = base.value if isinstance(base, ast.Subscript) else base
        where, ancestor = resolve_expression(module, named)
        if isinstance(ancestor, ast.ClassDef) and ancestor is not node:
            found += lineage(where, ancestor)
    return found


def _literals(module: Module, node: ast.ClassDef) -> dict[str, Any]:
    """The literals that a class body assigns; names of module constants are resolved."""
    values: dict[str, Any] = {}
    for item in node.body:
        value = assigned(item)
        if isinstance(value, ast.Name):
            value = assigned(resolve_name(module, value.id)[1])
        targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
        for target in targets if value is not None else ():
            if isinstance(target, ast.Name):
                with suppress(ValueError):
                    values[target.id] = ast.literal_eval(value)  # type: ignore[arg-type]
    return values


def _parameters(module: Module, node: ast.FunctionDef) -> dict[str, Parameter]:
    """The parameters of a function, without the run-time objects."""
    args = node.args
    optional = len(args.args) - len(args.defaults)
    given = dict(zip(args.kwonlyargs, args.kw_defaults, strict=True))
    given |= zip(args.args[optional:], args.defaults, strict=True)
    taken = [*(a for a in args.args if a.arg not in _PASSED), *args.kwonlyargs]
    kinds = {a: _known_type(module, a.annotation) for a in taken}
    defaults = {a: given.get(a) for a in taken}
    return {a.arg: Parameter(kinds[a], d is None, _literal(d)) for a, d in defaults.items()}


def _literal(node: ast.expr | None) -> Any:
    """The value of a literal; `...` for any other expression."""
    with suppress(ValueError):
        return ... if node is None else ast.literal_eval(node)
    return ...


def _dataclass_fields(module: Module, node: ast.ClassDef) -> dict[str, Parameter]:
    found = {}
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        options: set[str | None] = set() if item.value is None else {"value"}
        if isinstance(item.value, ast.Call) and "field" in _names(item.value.func):
            options = {keyword.arg for keyword in item.value.keywords}
        if {"ClassVar", "KW_ONLY"} & set(_names(item.annotation)) or "init" in options:
            continue
        given = bool({"default", "default_factory", "value"} & options)
        kind, default = _known_type(module, item.annotation), _literal(item.value)
        found[item.target.id] = Parameter(kind, not given, default)
    return found


def _names(node: ast.expr) -> Iterator[str]:
    return (n.id if isinstance(n, ast.Name) else getattr(n, "attr", "") for n in ast.walk(node))


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
        calls = [mark for mark in items[1:] if isinstance(mark, ast.Call)]
        marks = [call.keywords for call in calls if "Interval" in _names(call.func)]
        given = [{str(k.arg): ast.literal_eval(k.value) for k in keywords} for keywords in marks]
        bounds = [types.Interval(**limits) for limits in given]
        return typing.Annotated[_known_type(module, items[0]), *bounds, None]
    if name in ("dict", "Dict", "Mapping") and len(items) == 2:
        return dict[_known_type(module, items[0]), _known_type(module, items[1])]  # type: ignore[misc]
    if name in ("list", "List", "Sequence", "Iterable"):
        return list[_known_type(module, inner)]  # type: ignore[misc]
    return list[Any] if name in ("tuple", "Tuple") else _Unknown


def _union(kinds: list[Any]) -> Any:
    known = [kind for kind in kinds if kind is not _Unknown]
    if not known:
        return _Unknown
    return Any if Any in known else typing.Union[tuple(known)]  # noqa: UP007


def _named_type(module: Module, name: str, node: ast.expr) -> Any:
    if name in _BUILTINS:
        return _BUILTINS[name]
    if name == "Tensor":  # saves reading torch/__init__.py
        return _Unknown
    where, found = resolve_expression(module, node)
    if isinstance(found, ast.ClassDef) and any("ABC" in _names(base) for base in found.bases):
        return types.TargetNode
    value = assigned(found)
    return _Unknown if value is None else _type(where, value)
