"""Rules on Python functions of the user's own: found, and callable as they will be called.

Files are read, not imported: a plan runs none of the user's code. Of a live function the signature
is read.
"""

import ast
import inspect
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rlfactory.config.checks.base import Config, Traits, rewards_of
from rlfactory.config.checks.prompt_files import columns_of
from rlfactory.config.problems import Problem, closest
from rlfactory.config.prompt_data import nearest_file
from rlfactory.config.schema.static_names import defined, module_file
from rlfactory.utils.current_folder import find_source
from rlfactory.utils.live_objects import LiveObjectError, is_reference, resolve

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Call:
    """How a reward calls a function: its arguments, by position or by name.

    Attributes:
        arguments: the names of those that there always are.
        columns: the names of those that the prompts bring; None if they are not known.
        by_name: whether they are passed by keyword, each only if the function takes it.
    """

    arguments: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    by_name: bool = False


def require_callable_functions(config: Config, traits: Traits) -> Iterator[Problem]:
    """A reward's function exists, and takes the arguments with which it is called."""
    columns = columns_of(config, traits)
    brought = None if columns is None else tuple(name for name in columns if name != "prompt")
    for key, node, own in rewards_of(config, traits):
        arguments, spec = own.get("function_arguments"), node.get("function")
        if not arguments or not isinstance(spec, str) or spec == "???":
            continue
        call = Call(tuple(arguments), brought, own.get("passes_by_name", False))
        if is_reference(spec):
            if (live_fault := _live_fault(spec, call)) is not None:
                yield Problem(key, live_fault)
        elif (fault := _fault(spec, call)) is not None:
            message, better = fault
            fix = f"{key}.function={better}" if better else ""
            yield Problem(f"{key}.function", message, fix)


def _fault(spec: str, call: Call) -> tuple[str, str] | None:
    """What is wrong with `MODULE:NAME`, and a similar name that exists; None if it is right."""
    place, _, name = spec.rpartition(":")
    if not place and name.endswith(".py"):
        place, name = name, ""
    elif not place and "." in name:
        place, _, name = name.rpartition(".")
    path = _source(place)
    if path is None:
        if place.endswith(".py"):
            near = nearest_file(Path(place).expanduser())
            has_it = near is not None and name and _fault(f"{near}:{name}", call) is None
            return f"{spec}: there is no file {place}", f"{near}:{name}" if has_it else ""
        if _is_found(place):
            return None  # compiled, or built in: it has no source to read
        wanted = "package.module:name or path/to/file.py:name"
        return f"{spec}: there is no module {place or name} to import; allowed is {wanted}", ""
    module = _parsed(path, path.stat().st_mtime_ns)
    if isinstance(module, str):
        return f"{spec}: {module}", ""
    if missing := _missing_import(module, path):
        return f"{spec}: {path.name} imports {missing}, which is not installed", ""
    fitting = [n for n, node in _functions(module).items() if _definition_fault(node, call) is None]
    guess = closest(name, fitting) or next(iter(fitting), None)
    better = f"{place}:{guess}" if guess else ""
    if not name:
        return f"{spec} names no function; {path.name} has {_listed(_functions(module))}", better
    if (node := _defined(module, name)) is None:
        imports = [item for item in ast.walk(module) if isinstance(item, ast.ImportFrom)]
        if any(alias.name == "*" for item in imports for alias in item.names):
            return None
        return f"{spec}: {path.name} has no {name}; it has {_listed(_functions(module))}", better
    if ":" not in spec:
        return f"{spec} is neither package.module:name nor path/to/file.py:name", f"{place}:{name}"
    if isinstance(node, ast.Assign | ast.AnnAssign):
        if isinstance(node.value, ast.Constant | ast.List | ast.Dict | ast.Tuple | ast.Set):
            return f"{spec}: {name} is {ast.unparse(node.value):.40}, not a function", better
        return None
    fault = _definition_fault(node, call) if isinstance(node, Function) else None
    return None if fault is None else (f"{spec}: {name} {fault}", "")


def _live_fault(reference: str, call: Call) -> str | None:
    """Why a live function can't be called as a reward calls it; None if it can, or isn't known."""
    try:
        function = resolve(reference)
        fault = _call_fault(inspect.signature(function), call)
    except (LiveObjectError, TypeError, ValueError):  # of a former process, or written in C
        return None
    name = getattr(function, "__name__", type(function).__name__)
    return None if fault is None else f"{name} {fault}"


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) if names else "no function"


def _source(place: str) -> Path | None:
    """The source file of `path/to/file.py` or `package.module`; None if there is no such file."""
    if place.endswith(".py"):
        path = Path(place).expanduser()
        return path if os.path.isfile(path) else None
    with suppress(ImportError, ValueError):  # no such module, or one of this process without a spec
        return module_file(place)
    return None


def _is_found(module: str) -> bool:
    """Whether there is the top-level package of a module; nothing is imported."""
    top = module.partition(".")[0]
    try:
        return top in sys.builtin_module_names or find_source(top) is not None
    except (ImportError, ValueError):
        return False


@lru_cache(maxsize=16)
def _parsed(path: Path, state: int) -> ast.Module | str:
    """A file's syntax tree, or why it can't be parsed."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        return f"{path.name} is no Python: {error.msg} in line {error.lineno}"
    except (OSError, ValueError) as error:
        return f"{path.name} can't be read: {error}"


def _missing_import(module: ast.Module, path: Path) -> str | None:
    """A module that a file imports whenever it is run, and that can't be found."""
    if "sys.path" in ast.unparse(module):
        return None  # it looks elsewhere
    for item in module.body:
        names: Sequence[str] = ()
        if isinstance(item, ast.Import):
            names = [alias.name for alias in item.names]
        elif isinstance(item, ast.ImportFrom) and item.module and not item.level:
            names = [item.module]
        for name in names:
            top = name.partition(".")[0]
            if top not in sys.modules and not _is_found(top):
                return top
    return None


def _functions(module: ast.Module) -> Mapping[str, Function]:
    """The functions that a file defines for others."""
    defined = [item for item in module.body if isinstance(item, Function)]
    return {item.name: item for item in defined if not item.name.startswith("_")}


def _defined(module: ast.Module, name: str) -> ast.stmt | None:
    """The statement that gives a name its value, whether or not it stands inside an `if`."""
    top = [item for item in module.body if name in _names_bound(item)]
    nested = (item for item in ast.walk(module) if isinstance(item, ast.stmt))
    return top[-1] if top else next((item for item in nested if name in _names_bound(item)), None)


def _names_bound(item: ast.stmt) -> set[str]:
    """The names that a statement gives a value, or imports."""
    aliases = item.names if isinstance(item, ast.Import | ast.ImportFrom) else ()
    return defined(item) | {alias.asname or alias.name.partition(".")[0] for alias in aliases}


def _definition_fault(node: Function, call: Call) -> str | None:
    """As `_call_fault`, of a definition."""
    return None if node.decorator_list else _call_fault(_signature(node.args), call)


def _signature(args: ast.arguments) -> inspect.Signature:
    """What a definition takes; its defaults and annotations are not evaluated."""
    kinds = inspect.Parameter
    by_position = [
        *((arg, kinds.POSITIONAL_ONLY) for arg in args.posonlyargs),
        *((arg, kinds.POSITIONAL_OR_KEYWORD) for arg in args.args),
    ]
    needed = len(by_position) - len(args.defaults)
    by_name = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    given = [
        *((arg, kind, number < needed) for number, (arg, kind) in enumerate(by_position)),
        *([(args.vararg, kinds.VAR_POSITIONAL, True)] if args.vararg else []),
        *((arg, kinds.KEYWORD_ONLY, default is None) for arg, default in by_name),
        *([(args.kwarg, kinds.VAR_KEYWORD, True)] if args.kwarg else []),
    ]
    return inspect.Signature(
        [kinds(a.arg, kind, default=kinds.empty if need else None) for a, kind, need in given]
    )


def _call_fault(signature: inspect.Signature, call: Call) -> str | None:
    """Why a function can't be called as a reward calls it; None if it can, or can't be known."""
    taken = [
        p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    required = [p.name for p in taken if p.default is p.empty]
    if not call.by_name:
        try:
            signature.bind(*call.arguments)
        except TypeError:
            names = ", ".join(
                p.name for p in taken if p.kind != p.KEYWORD_ONLY or p.name in required
            )
            return f"takes ({names}), and is called with ({', '.join(call.arguments)})"
        return None
    if unnamed := [p.name for p in taken if p.kind is p.POSITIONAL_ONLY]:
        return f"takes {', '.join(unnamed)} by position only, and is called by name"
    known = [*call.arguments, *(call.columns or ())]
    unknown = [name for name in required if name not in known]
    if call.columns is None or not unknown:
        return None
    return f"takes {', '.join(unknown)}, and these prompts bring {', '.join(known)}"
