"""A run's own code runs only if this user began the run, or allows it now."""

import hashlib
import hmac
import json
import logging
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlfactory.config.own_code import named_code, untrusted
from rlfactory.config.problems import Problem
from rlfactory.run.atomic_write import write_text
from rlfactory.run.folder import RunFolder
from rlfactory.run.inputs import with_inputs
from rlfactory.utils.current_folder import trust_names
from rlfactory.utils.data_files import read_bytes, read_text

KEY_BYTES = 32
log = logging.getLogger(__name__)
Named = Sequence[tuple[str, str]]


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


def sign(folder: RunFolder, named: Named) -> None:
    """Sign the code that a run names; where the user's settings can't be written, it is not."""
    try:
        key = _key(make=True)
    except OSError as error:
        log.warning("the run is not signed, so resuming it needs trust=[...]: %s", error)
        return
    write_text(folder.signature, _mac(key, folder, named) + "\n")


def is_signed(folder: RunFolder, named: Named) -> bool:
    """Whether this user began a run with just this code."""
    with suppress(OSError, ValueError):
        written = read_text(folder.signature).strip()
        return hmac.compare_digest(written.encode(), _mac(_key(make=False), folder, named).encode())
    return False


def key_file() -> Path:
    """Where the user's key is, which only the user can read."""
    settings = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(settings) / "rlfactory" / "signing.key"


def _mac(key: bytes, folder: RunFolder, named: Named) -> str:
    copies = sorted([*folder.inputs.glob("*.py"), *folder.inputs.glob("moved.json")])
    kept = {copy.name: hashlib.sha256(read_bytes(copy)).hexdigest() for copy in copies}
    content = json.dumps([sorted(map(list, named)), kept], sort_keys=True)
    return hmac.new(key, content.encode(), hashlib.sha256).hexdigest()


def _key(*, make: bool) -> bytes:
    path = key_file()
    if make and not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)  # for its owner alone
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):  # another run has just made one
            os.link(name, path)
        os.unlink(name)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path} is no key")
    return key
