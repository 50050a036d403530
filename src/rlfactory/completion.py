"""What the tab key offers: Hydra's completion, after a subcommand and in nested folders too."""

import os
from collections.abc import Sequence

from rlfactory._hydra import options
from rlfactory.settings import GROUPS

FLAGS = {"-sc", "--shell-completion"}


def offered(line: str) -> list[str] | None:
    """The options that the last word of a line, `GROUP=BEGINNING`, can become; None: not of those.

    Hydra lists a group's own folder alone, and `experiment=peer/nft` lies in one below it.
    """
    group, equals, begun = line.rpartition(" ")[2].partition("=")
    if group not in GROUPS or not equals:
        return None
    return [f"{group}={name}" for name in options(group) if name.startswith(begun)]


def overrides_alone(line: str) -> str:
    """`rlfactory check algo=nft se` as `rlfactory algo=nft se`, which Hydra can complete."""
    command, *words = line.split(" ")
    return " ".join([command, *(word for word in words[:-1] if "=" in word), *words[-1:]])


def complete(argv: Sequence[str]) -> bool:
    """Answer a shell that asks for completions; False where Hydra shall, by `COMP_LINE`."""
    line = overrides_alone(os.environ.get("COMP_LINE", ""))
    found = offered(line) if any(word.startswith("query=") for word in argv) else None
    if found is not None:
        print(("\n" if "query=fish" in argv else " ").join(found))
        return True
    os.environ["COMP_LINE"], os.environ["COMP_POINT"] = line, str(len(line))
    return False
