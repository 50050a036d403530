"""The flags of the subcommands that take flags rather than overrides, by `commands.yaml`."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.problems import PlanError, Problem


def command_table() -> dict[str, dict[str, Any]]:
    """The content of `commands.yaml`."""
    text = Path(__file__).with_name("commands.yaml").read_text(encoding="utf-8")
    table: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return table


def parsed(command: str, words: Sequence[str], **facts: str) -> argparse.Namespace:
    """The values of a command's flags; PlanError where one does not pass its check.

    Args:
        facts: What the command's purpose names in braces.
    """
    table = command_table()
    flags = dict(table["flags"][command])
    parser = argparse.ArgumentParser(
        prog=f"rlfactory {command}",
        description=flags.pop("purpose").format(**facts),
        epilog=flags.pop("epilog", None),
    )
    rows = {flag: {**table["shared"].get(row.get("is"), {}), **row} for flag, row in flags.items()}
    one_of = None
    for flag, row in rows.items():
        if row.get("either") and one_of is None:
            one_of = parser.add_mutually_exclusive_group(required=True)
        _add(one_of if row.get("either") and one_of else parser, flag, row)
    values = parser.parse_intermixed_args(words)
    for flag, row in rows.items():
        name = flag.lstrip("-").replace("-", "_")
        if "check" in row and (value := getattr(values, name)) is not None:
            setattr(values, name, _CHECKS[row["check"]](flag, value))
    return values


def _add(parser: Any, flag: str, row: Mapping[str, Any]) -> None:
    options = {name: row[name] for name in row.keys() - {"check", "either", "is"}}
    if "type" in options:
        options["type"] = _TYPES[options["type"]]
    parser.add_argument(flag, **options)


def _size(text: str) -> int | list[int]:
    """The edge of a square, or height and width."""
    edges = [int(edge) for edge in text.split("x")]
    if len(edges) > 2 or min(edges) < 1:
        raise argparse.ArgumentTypeError(f"{text}: allowed are a number or two as 480x832")
    return edges[0] if len(edges) == 1 else edges


def _unused_folder(flag: str, folder: Path) -> Path:
    """A folder to write to; PlanError if something is there that would be overwritten."""
    folder = folder.expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        reason = "is not empty" if folder.is_dir() else "is a file"
        raise PlanError([Problem(flag, f"{folder} {reason}, and nothing is overwritten")])
    return folder


def _number(allowed: str, fits: Callable[[float], bool]) -> Callable[[str, Any], Any]:
    def check(flag: str, value: Any) -> Any:
        if not fits(value):
            raise PlanError([Problem(flag, f"is {value:g}; {allowed}")])
        return value

    return check


_TYPES: Mapping[str, Callable[[str], Any]] = {
    "float": float,
    "int": int,
    "path": Path,
    "size": _size,
}
_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "positive": _number("allowed are 1 or more", lambda value: value >= 1),
    "not negative": _number("allowed are 0 or more", lambda value: 0 <= value < math.inf),
    "share": _number("allowed is a number between 0 and 1", lambda value: 0 < value < 1),
    "unused folder": _unused_folder,
}
