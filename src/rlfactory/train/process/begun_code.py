"""A run's own code runs only if this user began the run, or allows it now.

The user's settings have a file for each run that was begun with code, by a digest of what it names
and of the copies in its folder. A folder that somebody sent can't make one.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.config.problems import Problem
from rlfactory.config.user_code import named_code, untrusted
from rlfactory.run.folder import RunFolder
from rlfactory.run.inputs import with_inputs
from rlfactory.utils.current_folder import trust_names
from rlfactory.utils.data_files import read_bytes

log = logging.getLogger(__name__)
Named = Sequence[tuple[str, str]]


def untrusted_code(folder: RunFolder, config: Mapping[str, Any]) -> list[Problem]:
    """A problem for each piece of code that a run folder names and that may not run; what may run
    can be imported from the current folder from now on, also by processes that are started.

    The copies of files in the folder, and the paths that were moved, count too.
    """
    located = with_inputs(config, folder)
    named = [*named_code(located)]
    if not named:
        return []
    problems = [] if is_begun(folder, [*named_code(config)]) else untrusted(located)
    if not problems:
        trust_names(value for _, value in named)
    return problems


def remember_code(folder: RunFolder, config: Mapping[str, Any]) -> None:
    """Note in the user's settings what code a run names that was begun here, if it names any."""
    if not (named := [*named_code(config)]):
        return
    try:
        record = _record(folder, named)
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.touch(mode=0o600)
    except OSError as error:
        log.warning("the run's code is not noted, so resuming it needs trust=[...]: %s", error)


def is_begun(folder: RunFolder, named: Named) -> bool:
    """Whether this user began a run with just this code."""
    try:
        return _record(folder, named).is_file()
    except (OSError, ValueError):
        return False


def records() -> Path:
    """The folder of the user's settings with a file for each run that was begun with code."""
    settings = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(settings) / "rlfactory" / "begun"


def _record(folder: RunFolder, named: Named) -> Path:
    copies = sorted([*folder.inputs.glob("*.py"), *folder.inputs.glob("moved.json")])
    kept = {copy.name: hashlib.sha256(read_bytes(copy)).hexdigest() for copy in copies}
    content = json.dumps([sorted(map(list, named)), kept], sort_keys=True)
    return records() / hashlib.sha256(content.encode()).hexdigest()
