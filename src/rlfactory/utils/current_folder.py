"""The current folder is not on the import path; modules there are imported if a command names them.

Whoever stands in a folder that somebody sent would otherwise run a file there which is named like
something that a library imports late: `attr.py`, `hydra_plugins/`, the metadata of a package.
"""

import csv
import io
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType

from rlfactory.utils.errors import UserError

TRUST = "RLFACTORY_TRUST"
"""The environment variable with the packages and files of one's own that may run: `mine,/me/f.py`.
What a command trusts is added, and functions that it names, so that its processes know them.
"""
_IMPORT_SYSTEM = "<frozen importlib"


def trusted_names() -> frozenset[str]:
    """The names in the environment variable."""
    names = next(csv.reader([os.environ.get(TRUST, "")], skipinitialspace=True), [])
    return frozenset(filter(None, map(str.strip, names)))


def trusted_packages() -> list[str]:
    """Those of the names that are no functions."""
    return [name for name in trusted_names() if ":" not in name]


def trust_names(names: Iterable[str]) -> None:
    """Let this process, and those that it starts, run packages and files."""
    every = sorted({*trusted_names(), *names})
    if every:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(every)  # quotes names that have commas
        os.environ[TRUST] = line.getvalue()


def leave_current_folder() -> None:
    """Take the current folder off the import path, here and in the processes started from here, and
    search it for the modules that are named, after everything that is installed. UserError where it
    was removed.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        here = Path.cwd()
    except FileNotFoundError as error:
        raise UserError("the current folder was removed; change to another: cd FOLDER") from error
    given = {Path(p).absolute() for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p}
    # what stands behind the standard library is installed, though it may lie in this folder
    library = str(Path(os.__file__).parent)
    count = sys.path.index(library) if library in sys.path else len(sys.path)
    if here not in given:
        first = [place for place in sys.path[:count] if place and Path(place).absolute() != here]
        sys.path[:] = [*first, *sys.path[count:]]
    search_named_modules()


def search_named_modules() -> None:
    """Search the current folder, last, for modules that `trusted_names` names."""
    if not any(isinstance(finder, NamedModules) for finder in sys.meta_path):
        sys.meta_path.append(NamedModules())


def find_source(name: str) -> ModuleSpec | None:
    """The spec of a top-level module, in order to read it: one of the current folder is found too,
    whether or not it is named, and nothing is imported. ValueError as from `find_spec`.
    """
    return find_spec(name) or PathFinder.find_spec(name, [str(Path.cwd())])


class NamedModules(MetaPathFinder):
    """Finds top-level modules of the current folder that are named, or that a module of that folder
    imports; after everything that is installed.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that may be imported from the folder; else None."""
        is_named = name in {named.partition(":")[0].partition(".")[0] for named in trusted_names()}
        if path is not None or not (is_named or _is_asked_from_here(sys._getframe(1))):
            return None
        return PathFinder.find_spec(name, [str(Path.cwd())], target)


def _is_asked_from_here(frame: FrameType | None) -> bool:
    """Whether a module of the current folder has asked for an import."""
    while frame is not None and frame.f_code.co_filename.startswith(_IMPORT_SYSTEM):
        frame = frame.f_back
    return frame is not None and Path(frame.f_code.co_filename).parent == Path.cwd()
