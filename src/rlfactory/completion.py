"""What the tab key offers: Hydra's completion, after a subcommand and in nested folders too."""

import os
from collections.abc import Sequence

from rlfactory._hydra import options
from rlfactory.settings import GROUPS

FLAGS = {"-sc", "--shell-completion"}
SUBCOMMANDS = ("check", "evaluate", "explain", "inspect", "list", "sample")


def offered(line: str) -> list[str] | None:
    """The options that the last word of a line, `GROUP=BEGINNING`, can become; None: not of those.

    Hydra lists a group's own folder alone, and `experiment=peer/nft` lies in one below it.
    """
    group, equals, begun = line.rpartition(" ")[2].partition("=")
    if group not in GROUPS or not equals:
        return None
    return [f"{group}={name}" for name in options(group) if name.startswith(begun)]


def without_subcommand(line: str) -> str:
    """`rlfactory check algo=` as `rlfactory algo=`, which Hydra can complete."""
    command, _, rest = line.partition(" ")
    first, space, after = rest.lstrip().partition(" ")
    return f"{command} {after}" if space and first in SUBCOMMANDS else line


def complete(argv: Sequence[str]) -> bool:
    """Answer a shell that asks for completions; False where Hydra shall, by `COMP_LINE`."""
    line = without_subcommand(os.environ.get("COMP_LINE", ""))
    found = offered(line) if any(word.startswith("query=") for word in argv) else None
    if found is not None:
        print(("\n" if "query=fish" in argv else " ").join(found))
        return True
    os.environ["COMP_LINE"], os.environ["COMP_POINT"] = line, str(len(line))
    return False
