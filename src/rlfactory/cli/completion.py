"""Shell completion: the options of a group, and what Hydra completes."""

import os
from collections.abc import Sequence

from rlfactory.config.options import options
from rlfactory.config.schema.root import GROUPS


def complete(argv: Sequence[str]) -> bool:
    """Print the completions that a shell asks for, if they are options of a group.

    Returns:
        False if Hydra must answer instead; `COMP_LINE` is then set to what it understands.
    """
    line = without_subcommand(os.environ.get("COMP_LINE", ""))
    completions = complete_option(line) if any(word.startswith("query=") for word in argv) else None
    if completions is not None:
        print(("\n" if "query=fish" in argv else " ").join(completions))
        return True
    os.environ["COMP_LINE"], os.environ["COMP_POINT"] = line, str(len(line))
    return False


def complete_option(line: str) -> list[str] | None:
    """Completions of a line's last word `GROUP=PREFIX`; None if the word is no such override.

    Hydra itself does not list options in subfolders, such as `experiment=peer/nft`.
    """
    group, equals, prefix = line.rpartition(" ")[2].partition("=")
    if group not in GROUPS or not equals:
        return None
    return [f"{group}={name}" for name in options(group) if name.startswith(prefix)]


def without_subcommand(line: str) -> str:
    """`rlfactory check algo=nft se` as `rlfactory algo=nft se`, which Hydra can complete."""
    command, *words = line.split(" ")
    return " ".join([command, *(word for word in words[:-1] if "=" in word), *words[-1:]])
