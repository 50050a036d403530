"""Damages of a folder: which can happen to which file, drawn at random and made smaller again."""

import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from faulty.harm.content import CONTENTS
from faulty.harm.places import OF_FOLDERS, PLACES, STRANGERS, Change, remove, stranger
from faulty.harm.tensors import TENSORS
from faulty.harm.values import VALUES

from rlfactory.run.checkpoint.checksums import MANIFEST_FILE, _signed, write_manifest

FOREIGN, STRANGER = "that of another run", "a file that was not there"
LARGEST = 1000


@dataclass(frozen=True)
class Damage:
    """One damage of the file at `path` in a folder.

    `signed`: what holds checksums is made to agree with it.
    """

    path: str
    kind: str
    seed: int
    size: int = 1
    signed: bool = False

    def __str__(self) -> str:
        size = f" of size {self.size}" if self.size > 1 else ""
        return f"{self.path}: {self.kind}{size}{', checksums agree' if self.signed else ''}"

    def smaller(self) -> Iterator["Damage"]:
        """Damages like this one, of less."""
        if self.size > 1:
            yield replace(self, size=self.size // 2)
        if self.signed:
            yield replace(self, signed=False)


def drawn(folder: Path, chance: random.Random) -> tuple[Damage, ...]:
    """One damage of a folder, seldom two or three."""
    count = chance.choices([1, 2, 3], [6, 2, 1])[0]
    return tuple(_drawn(folder, chance) for _ in range(count))


def _drawn(folder: Path, chance: random.Random) -> Damage:
    path = _path(folder, chance)
    kinds = [kinds for kinds in _kinds(folder / path) if kinds]
    kind = chance.choice([*chance.choice(kinds)])
    size = chance.choice([1, 1, 4, 30, LARGEST])
    signed = "checkpoints/step_" in path and chance.random() < 0.8
    return Damage(path, kind, chance.randrange(2**32), size, signed)


def _path(folder: Path, chance: random.Random) -> str:
    """A file, each kind of them as likely; seldom a folder, or a name that is not there."""
    if (draw := chance.random()) < 0.06:
        return chance.choice(STRANGERS)
    paths = sorted(folder.rglob("*"))
    by_name: dict[str, list[Path]] = {}
    for path in paths:
        if path.is_dir() == (draw < 0.12):
            name = "".join(letter for letter in path.name if not letter.isdigit())
            by_name.setdefault(f"{path.parent.name[:4]}/{name}", []).append(path)
    chosen = chance.choice(by_name[chance.choice(sorted(by_name))])
    return chosen.relative_to(folder).as_posix()


def _kinds(path: Path) -> list[Mapping[str, Change | None]]:
    """The kinds of damage of what lies at a path; each mapping of them is as likely."""
    if path.is_dir():
        return [OF_FOLDERS]
    if not path.exists():
        return [{STRANGER: None}]
    kinds: list[Mapping[str, Change | None]] = [{**PLACES, FOREIGN: None}, CONTENTS]
    if path.suffix in (".json", ".jsonl", ".yaml"):
        kinds += [VALUES] * 4
    if path.suffix == ".safetensors":
        kinds += [TENSORS] * 5
    return kinds


CHANGES: Mapping[str, Change] = {**CONTENTS, **PLACES, **OF_FOLDERS, **VALUES, **TENSORS}


def inflict(folder: Path, damage: Damage, other: Path) -> None:
    """Do a damage to a folder; `other` is a folder of another run."""
    path, chance = folder / damage.path, random.Random(damage.seed)
    if path.exists() and not (path.is_file() or path.is_dir()):
        return  # an earlier damage left a pipe or a device there, which has no end to read
    try:
        _change(damage.kind, other / damage.path)(path, chance, damage.size)
    except (OSError, ValueError):  # an earlier damage left nothing there to change
        return
    if damage.signed:
        _sign(path, chance)


def _change(kind: str, other: Path) -> Change:
    if kind == STRANGER:
        return stranger
    if kind == FOREIGN:
        return lambda path, chance, size: _foreign(path, other)
    return CHANGES[kind]


def _foreign(path: Path, other: Path) -> None:
    if other.is_file():
        remove(path)
        shutil.copyfile(other, path)


def _sign(path: Path, chance: random.Random) -> None:
    """Make the manifest of a checkpoint agree with its files, and with itself."""
    folder = next(p for p in (path, *path.parents) if p.name.startswith("step_"))
    manifest = folder / MANIFEST_FILE
    if not manifest.is_file():
        return
    try:
        content = json.loads(manifest.read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    if not isinstance(content, dict):
        return
    if path.name == MANIFEST_FILE:
        content.pop("digest", None)
        remove(manifest)
        manifest.write_bytes(_signed(content))
        return
    if not all(p.is_dir() or (p.is_file() and not p.is_symlink()) for p in folder.rglob("*")):
        return  # no checkpoint is written with these
    about = {k: v for k, v in content.items() if k not in ("format", "files", "digest")}
    remove(manifest)
    write_manifest(folder, about)


def shrunk(
    damages: tuple[Damage, ...], fails: Callable[[tuple[Damage, ...]], bool], tries: int = 12
) -> tuple[Damage, ...]:
    """As few damages as still fail, and as small; `fails` is asked at most `tries` times."""
    while tries > 0:
        for smaller in _smaller(damages):
            tries -= 1
            if fails(smaller):
                damages = smaller
                break
            if tries <= 0:
                break
        else:
            break
    return damages


def _smaller(damages: tuple[Damage, ...]) -> Iterator[tuple[Damage, ...]]:
    for i, damage in enumerate(damages):
        before, after = damages[:i], damages[i + 1 :]
        if len(damages) > 1:
            yield (*before, *after)
        for smaller in damage.smaller():
            yield (*before, smaller, *after)
