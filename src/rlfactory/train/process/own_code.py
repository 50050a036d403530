"""A run's own code runs only if this user began the run, or allows it now."""

from collections.abc import Mapping
from typing import Any

from rlfactory.config.own_code import named_code, untrusted
from rlfactory.config.problems import Problem
from rlfactory.run.folder import RunFolder
from rlfactory.run.inputs import with_inputs
from rlfactory.run.signature import is_signed, sign


def untrusted_code(folder: RunFolder, config: Mapping[str, Any]) -> list[Problem]:
    """A problem for each piece of code that a run folder names and that may not run.

    Args:
        folder: the run folder; its copies of files, and the paths that were moved, count too.
        config: its frozen configuration.
    """
    located = with_inputs(config, folder)
    if not [*named_code(located)] or is_signed(folder, [*named_code(config)]):
        return []
    return untrusted(located)


def sign_run(folder: RunFolder, config: Mapping[str, Any]) -> None:
    """Sign a run that this user began, if it names code."""
    if named := [*named_code(config)]:
        sign(folder, named)
