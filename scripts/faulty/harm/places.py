"""What can lie where a file should be: nothing, a folder, a link, a pipe, a stranger's file."""

import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

RUN, OUTSIDE = "run", "outside"
"""Names of the damaged folder, and of a file beside it that links lead to."""
Change = Callable[[Path, random.Random, int], None]
"""Changes what lies at a path. The number, from 1 up, says how much where there is a size."""


def remove(path: Path) -> None:
    """Whatever it is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write(path: Path, data: bytes) -> None:
    """A new file, for the old one may be a link to another's."""
    remove(path)
    path.write_bytes(data)


def _folder(path: Path, chance: random.Random, size: int) -> None:
    remove(path)
    path.mkdir()
    if chance.random() < 0.5:
        (path / "inside").write_text("x")


def _file(path: Path, chance: random.Random, size: int) -> None:
    remove(path)
    path.write_text("x" * size)


def _pipe(path: Path, chance: random.Random, size: int) -> None:
    remove(path)
    os.mkfifo(path)


def _linked(target: str) -> Change:
    def link(path: Path, chance: random.Random, size: int) -> None:
        remove(path)
        path.symlink_to(target.format(name=path.name))

    return link


def _linked_outside(path: Path, chance: random.Random, size: int) -> None:
    """A link to a copy of the file beside the run folder, which nothing may write through."""
    outside = next(parent for parent in path.parents if parent.name == RUN).parent / OUTSIDE
    outside.write_bytes(path.read_bytes())
    remove(path)
    path.symlink_to(outside)


PLACES: Mapping[str, Change] = {
    "gone": lambda path, chance, size: remove(path),
    "a folder": _folder,
    "a pipe": _pipe,
    "a link to nothing": _linked("nowhere"),
    "a link to itself": _linked("{name}"),
    "a link to a device": _linked("/dev/zero"),
    "a link to its folder": _linked("."),
    "a link to a file outside": _linked_outside,
}
OF_FOLDERS: Mapping[str, Change] = {
    **{name: change for name, change in PLACES.items() if change not in (_folder, _linked_outside)},
    "a file": _file,
}
STRANGERS = (
    *("checkpoints/step_000009", "checkpoints/.step_000009", "checkpoints/damaged_step_000003"),
    *(
        "evaluations/\u00b2.json",
        f"evaluations/{'9' * 20}.json",
        "evaluations/000009.json",
    ),
    *("samples/eval_\u00b2.json", "samples/eval_000009.json", "samples/eval_x.png"),
    *("samples/strip/000009_0.png", "samples/strip/x_y.png", "samples/drawn_001"),
    *("prompt_sets", "prompt_sets/x", "inputs/index.json", "inputs/moved.json", "objects.json"),
    *("OWNER", "config_1.yaml", "evidence", "inspect", "report", ".x.unfinished", "log_rank_1.txt"),
)
"""Files that a run of another kind, a later version or somebody else may have left."""


def stranger(path: Path, chance: random.Random, size: int) -> None:
    """Something at a name that the folder does not have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = chance.choice(["", "x", "{}", "[]", "null", '{"a": "b"}', "\ufffd" * 9])
    kinds = [_folder, _pipe, _linked("nowhere"), _linked("{name}"), None, None, None]
    kind = chance.choice(kinds)
    if kind is None:
        write(path, content.encode())
    else:
        kind(path, chance, size)
