"""The reference of the command line: what `rlfactory --help` and `COMMAND --help` print.

The site's build calls `pages`.
"""

import io
import os
import re
from contextlib import redirect_stdout, suppress

from rlfactory.cli.app import dispatch


def help_of(*words: str) -> str:
    """What `rlfactory WORDS --help` prints."""
    shown = io.StringIO()
    os.environ["COLUMNS"] = "96"  # argparse's width
    with redirect_stdout(shown), suppress(SystemExit):
        dispatch([*words, "--help"])
    return shown.getvalue().rstrip()


def commands(overview: str) -> list[str]:
    """The commands that the overview names, in its order."""
    words = re.findall(r"^  rlfactory ([a-z][a-z-]*)(?: |$)", overview, flags=re.M)
    return list(dict.fromkeys(words))


def page() -> str:
    """The overview and a section for each command with a help of its own."""
    overview = help_of()
    parts = ["# Commands", "## `rlfactory --help`", _block(overview)]
    for command in commands(overview):
        if (shown := help_of(command)) != overview:
            parts += [f"## `rlfactory {command}`", _block(shown)]
    return "\n\n".join(parts) + "\n"


def _block(text: str) -> str:
    return f"```text\n{text}\n```"


def pages() -> dict[str, str]:
    """The text of the page by its name."""
    return {"commands.md": page()}
