"""The options of each group: their files, ours and on the search path, and a line about each."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from rlfactory.config.problems import PlanError, Problem, closest
from rlfactory.config.schema.root import GROUPS
from rlfactory.config.schema.targets import plugins


def packaged_folder(name: str) -> Path:
    """`conf` or `sweeps`: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).parents[1]
    inside = package / name
    return inside if inside.is_dir() else package.parents[1] / name


def yaml_files(folder: str) -> Iterator[os.DirEntry[str]]:
    """The YAML files in a folder and those below it; `Path.rglob` takes four times as long."""
    folders = [folder] if os.path.isdir(folder) else []
    for below in folders:
        for entry in os.scandir(below):
            if entry.is_dir():
                folders.append(entry.path)
            elif entry.name.endswith(".yaml"):
                yield entry


def packaged_files_state() -> tuple[tuple[str, int], ...]:
    """The path and modification time of each of our configuration files."""
    files = yaml_files(str(packaged_folder("conf")))
    return tuple(sorted((entry.path, entry.stat().st_mtime_ns) for entry in files))


def describe_options(group: str, places: Sequence[str]) -> dict[str, str]:
    """A group's options and the first comment of each one's file; `places` are searched too."""
    if group not in GROUPS:
        guess = closest(group, GROUPS)
        suggestion = f" Did you mean {guess}?" if guess else ""
        message = f"is no group; groups are {', '.join(GROUPS)}.{suggestion}"
        raise PlanError([Problem(group, message, f"rlfactory list {guess or ''}".rstrip())])
    return {name: first_comment(path) for name, path in options(group, places).items()}


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def first_comment(path: Path) -> str:
    """The first comment line of a YAML file that is no directive to Hydra."""
    comments = [line.lstrip("# ") for line in _lines(path) if line.startswith("#")]
    return next((text for text in comments if not text.startswith("@package")), "")


GLOBAL = "#@package_global_"
"""The line, without its spaces."""


def is_global(path: Path) -> bool:
    """Whether a file's keys are those of the root, by `# @package _global_` before all else."""
    squeezed = (line.replace(" ", "") for line in _lines(path))
    return next(filter(None, squeezed), "").startswith(GLOBAL)


def options(group: str, places: Sequence[str] = ()) -> dict[str, Path]:
    """A group's options by name, with their files; of two with one name, the first counts.

    An option in a subfolder has the subfolder in its name: `peer/nft`.
    """
    files: dict[str, Path] = {}
    for folder in (parent / group for parent in folders(places)):
        start = len(str(folder)) + 1
        for path in sorted(entry.path for entry in yaml_files(str(folder))):
            files.setdefault(Path(path[start:-5]).as_posix(), Path(path))
    return files


def folders(places: Sequence[str] = ()) -> list[Path]:
    """The folders that hold options: ours, the plug-ins', then `places`."""
    paths = [*(f"pkg://{package}" for package in plugins().values()), *places]
    return [packaged_folder("conf"), *(folder for p in paths if (folder := _folder(p)) is not None)]


def _folder(path: str) -> Path | None:
    """The folder behind an entry of the search path; None for a package that there is none of."""
    kind, _, place = path.rpartition("://")
    if kind != "pkg":
        return Path(place)
    with suppress(ImportError):
        spec = find_spec(place)
        return Path(spec.origin).parent if spec and spec.origin else None
    return None
