"""A run's own code runs only if this user began the run, or allows it now."""

from collections.abc import Mapping
from typing import Any

from rlfactory.config.own_code import named_code, untrusted
from rlfactory.config.problems import Problem
from rlfactory.run.folder import RunFolder
from rlfactory.run.inputs import with_inputs
from rlfactory.run.signature import is_signed, sign
from rlfactory.utils.current_folder import trust_names


def untrusted_code(folder: RunFolder, config: Mapping[str, Any]) -> list[Problem]:
    """A problem for each piece of code that a run folder names and that may not run; what may run
    can be imported from the current folder from now on, also by processes that are started.

    Args:
        folder: the run folder; its copies of files, and the paths that were moved, count too.
        config: its frozen configuration.
    """
    located = with_inputs(config, folder)
    named = [*named_code(located)]
    if not named:
        return []
    problems = [] if is_signed(folder, [*named_code(config)]) else untrusted(located)
    if not problems:
        trust_names(value for _, value in named)
    return problems


def sign_run(folder: RunFolder, config: Mapping[str, Any]) -> None:
    """Sign a run that this user began, if it names code."""
    if named := [*named_code(config)]:
        sign(folder, named)
