"""Arguments of commands, by `commands.yaml`: flags of those without overrides, and `--help`."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from rlfactory.config.options import options
from rlfactory.config.problems import PlanError, Problem
from rlfactory.config.schema.root import GROUPS
from rlfactory.utils.data_files import load_yaml
from rlfactory.utils.text import typed_path

_EVALUATION = """
evaluation eval_rewards eval_sets scoring seed sample_batch prompt_cache reward prompts hardware
schedule precision memory
"""
EVALUATION_KEYS = tuple(_EVALUATION.split())
DECODING_KEYS = ("dynamics.temperature", "dynamics.top_k", "dynamics.top_p")
"""What an evaluation may change, in `evaluate RUN` and in its help."""


def command_table() -> dict[str, Any]:
    """The content of `commands.yaml`."""
    text = Path(__file__).with_name("commands.yaml").read_text(encoding="utf-8")
    return load_yaml(text)


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
        given = {name: row[name] for name in row.keys() - {"check", "either", "is"}}
        given |= {"type": _TYPES[row["type"]]} if "type" in row else {}
        place: Any = one_of if row.get("either") else parser
        place.add_argument(flag, **given)
    values = parser.parse_intermixed_args(words)
    for flag, row in rows.items():
        name = flag.lstrip("-").replace("-", "_")
        if "check" in row and (value := getattr(values, name)) is not None:
            setattr(values, name, _CHECKS[row["check"]](flag, value))
    return values


def _size(text: str) -> int | list[int]:
    """The edge of a square, or height and width."""
    edges = [int(edge) for edge in text.split("x")]
    if len(edges) > 2 or min(edges) < 1:
        raise argparse.ArgumentTypeError(f"{text}: allowed are a number or two as 480x832")
    return edges[0] if len(edges) == 1 else edges


def _unused_folder(flag: str, folder: Path) -> Path:
    """A folder to write to; PlanError if something is there that would be overwritten."""
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


_TYPES: Mapping[str, Callable[[str], Any]]
_TYPES = {"float": float, "int": int, "path": typed_path, "size": _size}
_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "positive": _number("allowed are 1 or more", lambda value: value >= 1),
    "not negative": _number("allowed are 0 or more", lambda value: 0 <= value < math.inf),
    "share": _number("allowed is a number between 0 and 1", lambda value: 0 < value < 1),
    "unused folder": _unused_folder,
}


def show_help(command: str = "") -> int:
    """Print the help of a command; without one the groups, examples and commands."""
    table = command_table()
    if (row := table["words"].get(command)) is not None:
        keys = {"evaluation": ", ".join(EVALUATION_KEYS), "decoding": ", ".join(DECODING_KEYS)}
        print(f"usage: rlfactory {row['usage']}\n")
        print("\n".join(wrap(row["purpose"].format(**keys), 96)))
        print("\nexamples")
        width = max(map(len, row["examples"]))
        for example, meaning in row["examples"].items():
            print(f"  rlfactory {example:<{width}}   {meaning}")
        return 0
    groups = []
    for group, asks in GROUPS.items():  # long lists are cut: what ships comes first
        names = sorted(options(group), key=lambda name: not name.startswith("tiny_"))
        text = f"{asks}: {', '.join(names)}"
        lines = wrap(text, 92, max_lines=2, placeholder=" ...", break_on_hyphens=False)
        groups.append(f"  {group:<12} " + f"\n{'':<15}".join(lines))
    print(table["overview"].format(groups="\n".join(groups)).rstrip())
    return 0
