"""The code that a configuration names, and whether the command or the user's settings allow it.

Code is named by a `_target_` outside of this package and by a reward's `function`. It runs if it
was typed, if `trust` was typed or is in the environment variable `RLFACTORY_TRUST`, or if a run of
this user had it (`train/process/begun_code.py`). A file that somebody sent can't allow it.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlfactory.config.problems import Problem, override_key
from rlfactory.config.schema.targets import is_allowed, is_installed, trusted_by
from rlfactory.utils.current_folder import trusted_names
from rlfactory.utils.dotted_keys import FUNCTION, last_part, texts
from rlfactory.utils.live_objects import is_reference

_FUNCTION = re.compile(r"function\W*?[=:]\W*?([^\s,'\"}\]]+)")
_TRUSTED = re.compile(r"[^\s,'\"\[\]]+")
_LISTED = re.compile(r"[^\s,'\"\[\]{}=:]+:\w+")


def named_code(config: object) -> Iterator[tuple[str, str]]:
    """The key and value of each `_target_` outside this package and plug-ins, and each function."""
    for key, text in texts(config):
        if last_part(key) == FUNCTION:
            names_code = text != "???" and not is_reference(text)
        else:
            names_code = last_part(key) == "_target_" and not is_installed(text)
        if names_code:
            yield key, text


def names_in(words: Iterable[str]) -> set[str]:
    """The packages and files that typed words trust, and the functions that they name."""
    return {_absolute(name) for word in words for name in _named(word)}


def _named(word: str) -> set[str]:
    """Those of one word: as Hydra reads it, since a path may have spaces; else what looks so."""
    key, value = override_key(word), word.partition("=")[2]
    is_list, is_trust = key in ("reward", "reward.of", "eval_rewards.of"), key == "trust"
    if not (is_trust or is_list or FUNCTION in word):
        return set()
    from rlfactory.config._hydra import CompositionError, parse  # not in a run's own process

    whole = set[str]()
    with suppress(*CompositionError):
        whole = {
            text
            for name, text in texts(parse([word])[0].value(), key)
            if is_trust or last_part(name) == FUNCTION or (is_list and ":" in text)
        }
    if whole or is_trust:
        return whole or {*_TRUSTED.findall(value)}
    return {*_FUNCTION.findall(word), *(_LISTED.findall(value) if is_list else ())}


def untrusted(config: Mapping[str, Any], words: Sequence[str] = ()) -> list[Problem]:
    """A problem for each piece of code that neither `words` nor the user's settings allow."""
    allowed = names_in(words) | {_absolute(name) for name in trusted_names()}
    claims = trusted_by(config)
    return [
        Problem(key, f"{value} is code of its own; read it, then type {_trusting(value)}")
        for key, value in named_code(config)
        # without any `trust` the schema has said so
        if (":" in value or is_allowed(value, claims))
        and not {_absolute(value), _absolute(_place(value)), *_packages(value)} & allowed
    ]


def _place(value: str) -> str:
    """The package of an import path, or the file of a function."""
    place = value.rpartition(":")[0] if ":" in value else value
    return place if place.endswith(".py") else place.partition(".")[0]


def _trusting(value: str) -> str:
    from rlfactory.config.words import typed_value

    typed = f"trust={typed_value([_place(value)])}"
    return shlex.quote(typed) if "'" in typed else typed


def _packages(value: str) -> Iterator[str]:
    """The packages and modules that an import path lies in, which may be trusted each."""
    parts = value.partition(":")[0].split(".")
    is_function = ":" in value
    return (".".join(parts[:count]) for count in range(1, len(parts) + is_function))


def _absolute(name: str) -> str:
    """A name; of a file, and of a function in one, with the file's real path."""
    file, colon, function = name.rpartition(":") if ":" in name else (name, "", "")
    if not file.endswith(".py"):
        return name
    return f"{os.path.realpath(Path(file).expanduser())}{colon}{function}"
