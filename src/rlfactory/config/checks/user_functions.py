"""A rule on Python functions of the user's own: they are there.

Files are read, not imported: a plan runs none of the user's code. The reward that calls a function
checks what it takes, before the model is loaded.
"""

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from rlfactory.config.checks.base import Config, Traits, rewards_of
from rlfactory.config.problems import Problem, closest
from rlfactory.config.prompt_data import nearest_file
from rlfactory.config.schema.static_names import TargetError, defined, module_file
from rlfactory.utils.current_folder import find_source
from rlfactory.utils.live_objects import is_reference


def require_functions(config: Config, traits: Traits) -> Iterator[Problem]:
    """The function that a reward calls is defined where it is named."""
    for key, node, _ in rewards_of(config, traits):
        spec = node.get("function")
        if isinstance(spec, str) and spec != "???" and not is_reference(spec):
            for message, better in _faults(spec):
                fix = f"{key}.function={better}" if better else ""
                yield Problem(f"{key}.function", f"{spec}: {message}", fix)


def _faults(spec: str) -> Iterator[tuple[str, str]]:
    """What is wrong with `MODULE:NAME`, and what may be meant."""
    place, _, name = spec.rpartition(":")
    if not place:
        place, name = (name, "") if name.endswith(".py") else name.rpartition(".")[::2]
    if place.endswith(".py") and not os.path.isfile(Path(place).expanduser()):
        near = nearest_file(Path(place).expanduser())
        yield f"there is no file {place}", f"{near}:{name}" if near and name else ""
        return
    try:
        path = Path(place).expanduser() if place.endswith(".py") else module_file(place)
        body = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        yield f"{place} is no Python: {error.msg} in line {error.lineno}", ""
        return
    except (TargetError, ImportError, OSError, ValueError):
        if not _is_compiled(place):
            wanted = "package.module:name or path/to/file.py:name"
            yield f"there is no module {place or name} to import; allowed is {wanted}", ""
        return
    known = [n.name for n in body.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    known = [other for other in known if not other.startswith("_")]
    guess = closest(name, known) or next(iter(known), None)
    if not name or not {name, "*"} & _names(body):
        has = f"it has {', '.join(known) or 'no function'}"
        better = f"{place}:{guess}" if guess else ""
        yield f"{place} has no {name}; {has}" if name else f"names no function; {has}", better
    elif ":" not in spec:
        yield "is neither package.module:name nor path/to/file.py:name", f"{place}:{name}"


def _names(body: ast.Module) -> set[str]:
    """The names that a file defines or imports, also inside an `if`."""
    items = [item for item in ast.walk(body) if isinstance(item, ast.stmt)]
    imports = [item for item in items if isinstance(item, ast.Import | ast.ImportFrom)]
    named = {a.asname or a.name.partition(".")[0] for item in imports for a in item.names}
    return named.union(*map(defined, items))


def _is_compiled(module: str) -> bool:
    """Whether the package of a module without source is there; nothing is imported."""
    top = module.partition(".")[0]
    try:
        return bool(top) and (top in sys.builtin_module_names or find_source(top) is not None)
    except (ImportError, ValueError):
        return False
