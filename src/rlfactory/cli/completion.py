"""Completion of the command line: a script for the shell, and what the shell asks for."""

import os
from collections.abc import Sequence

from rlfactory.config._hydra import install_completion
from rlfactory.config.options import options
from rlfactory.config.overrides import compose
from rlfactory.config.problems import PlanError
from rlfactory.config.schema.root import GROUPS
from rlfactory.utils.dotted_keys import leaves


def complete(argv: Sequence[str]) -> int:
    """Answer `-sc query=SHELL`, or print Hydra's script of `-sc install=SHELL`."""
    if not any(word.startswith("query=") for word in argv):
        install_completion(argv)
        return 0
    found = completions(os.environ.get("COMP_LINE", ""))
    print(("\n" if "query=fish" in argv else " ").join(found))
    return 0


def completions(line: str) -> list[str]:
    """What a line's last word may become: an option of a group, or a key up to its next part."""
    *typed, last = line.split(" ")
    group, equals, prefix = last.partition("=")
    if equals:
        known = options(group) if group in GROUPS else ()
        return [f"{group}={name}" for name in known if name.startswith(prefix)]
    try:
        values = compose([word for word in typed if "=" in word]).values
    except PlanError:
        values = {}
    keys = [key for key in (*GROUPS, *(key for key, _ in leaves(values))) if key.startswith(last)]
    ends = (key.find(".", len(last)) for key in keys)
    cut = (key[: end + 1] if end >= 0 else f"{key}=" for key, end in zip(keys, ends, strict=True))
    return [*dict.fromkeys(cut)]
