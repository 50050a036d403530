"""What can be chosen: each group's options with a line about each."""

from collections.abc import Sequence
from pathlib import Path

from rlfactory._hydra import options
from rlfactory.problems import PlanError, Problem, closest
from rlfactory.settings import GROUPS


def describe_options(group: str, places: Sequence[str] = ()) -> dict[str, str]:
    """A group's options and the first comment of each one's file; `places` are searched too."""
    if group not in GROUPS:
        guess = closest(group, GROUPS)
        meant = f" Did you mean {guess}?" if guess else ""
        message = f"is no group; groups are {', '.join(GROUPS)}.{meant}"
        raise PlanError([Problem(group, message, f"rlfactory list {guess or ''}".rstrip())])
    return {name: first_comment(path) for name, path in options(group, places).items()}


def first_comment(path: Path) -> str:
    """The first comment line of a YAML file that is no directive to Hydra."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    comments = [line.lstrip("# ") for line in lines if line.startswith("#")]
    return next((text for text in comments if not text.startswith("@package")), "")
