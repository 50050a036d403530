"""Configuration files of other libraries as commands, by the data of `libraries/*.yaml`.

A library's file has `defaults` (of options that a file leaves out, dotted), `words` (typed in any
case), `rows` (applied in order), then the table of names for what is left, and `last` rows;
`nothing` says why keys have no counterpart, by the end of their names. A file may take its rows and
reasons from that of another library (`like`). importer.py says what a row may have.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.peers import computed
from rlfactory.config.peers.importer import Importer, flat
from rlfactory.config.peers.translation import Translation


@cache
def libraries() -> Mapping[str, Mapping[str, Any]]:
    """The data of each library, by its name."""
    files = sorted((Path(__file__).parent / "libraries").glob("*.yaml"))
    found = {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}
    for data in found.values():
        if other := found.get(data.get("like")):
            data["rows"] = [*data.get("first", ()), *other["rows"]]
            data["nothing"] = other["nothing"]
        if other := found.get(data.get("like_nothing")):
            data["nothing"] = {**other["nothing"], **data["nothing"]}
        if other := found.get(data.get("like_last")):
            data["last"] = other["last"]
    return {data["library"]: data for data in found.values()}


def translate(
    library: str,
    content: Mapping[str, Any],
    processes: int = 1,
    trainer: str | None = None,
    peer: str | None = None,
) -> Translation:
    """Translate the options of a library, nested or dotted.

    Args:
        library: its name.
        content: its options.
        processes: the number of GPUs that they are for.
        trainer: the option of `algo`, where the options do not say it.
        peer: the library, where it has the names of another.

    Raises:
        PlanError: a choice is none that is here.
    """
    data = libraries()[library]
    renamed = data.get("renamed", {})
    given = {renamed.get(key, key): value for key, value in flat(content)}
    own = data.get("trainers", {}).get(trainer, {}).get("defaults", {})
    base = libraries()["TRL"]["trainers"].get(trainer, {}).get("defaults", {})
    given = {**base, **data.get("defaults", {}), **own, **given}
    into = Translation(peer or library)
    into.type(*data.get("words", "").split(), *([f"algo={trainer}"] if trainer else []))
    known = {**given, "library": library, "processes": processes}
    made = Importer(into, given, known, vars(computed))
    for row in data["rows"]:
        made.apply(row)
    made.translate_rest([*data.get("names", [library]), into.peer], data.get("nothing", {}))
    for row in data.get("last", ()):
        made.apply(row)
    return into
