"""The words of a command in Hydra's grammar: values written as words, words read as overrides."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rlfactory.config._hydra import CompositionError, Override, parse
from rlfactory.config.problems import PlanError, Problem, override_key

SEARCHPATH = "hydra.searchpath"
LONGEST = 2000
"""Characters of an override: Hydra takes seconds to read a list of some thousand values."""


def typed_value(value: object) -> str:
    """A value as it is typed after `KEY=`."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str | Path):
        text = str(value)
        is_plain = text.isascii() and re.sub(r"[_/.:-]", "", text).isalnum()
        return text if is_plain else _quoted(text)
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{typed_value(below)}' for key, below in value.items())}}}"
    if isinstance(value, Iterable):
        return f"[{','.join(map(typed_value, value))}]"
    return repr(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def normalise_words(words: Sequence[str]) -> list[str]:
    """Rewrite words that Hydra's compose can't read: `-cd FOLDER`, `~` and `experiment=null`."""
    kept, folders = [], []
    rest = [re.sub(r"^([\w.+]+=)~(?=/|$)", rf"\1{Path.home()}", word) for word in words]
    while rest:
        word = rest.pop(0)
        flag, _, value = word.partition("=")
        if flag not in ("-cd", "--config-dir"):
            kept += [word] if word != "experiment=null" else []
            continue
        if not value and not rest:
            raise PlanError([Problem(flag, f"names no folder; type {flag} FOLDER")])
        folder = Path(value or rest.pop(0)).expanduser().resolve()
        if not os.path.isdir(folder):
            raise PlanError([Problem(flag, f"there is no folder {folder}")])
        folders.append(f"file://{folder}")
    if not folders:
        return kept
    places = typed_value([*searched(kept), *folders])
    return [*(w for w in kept if override_key(w) != SEARCHPATH), f"{SEARCHPATH}={places}"]


def searched(overrides: Sequence[str]) -> list[str]:
    """The folders and packages that `hydra.searchpath` adds, given as a list or a single one."""
    typed = [o for o in overrides if override_key(o) == SEARCHPATH]
    try:
        value = parse(typed)[-1].value() if typed else []
    except CompositionError:
        return []
    return [str(v) for v in value] if isinstance(value, list) else [str(value)]


# below these keys any part's name is a key, and parts are known only once `of` is read: Hydra
# accepts one that does not exist yet with `++`
_PART_KEYS = re.compile(
    r"(reward\.(parts|weights|normalise|gates|clips)|(eval_rewards|logger)\.parts"
    r"|eval_sets\.(parts|rewards|counts))[.=]"
)


def read(word: str, problems: list[Problem]) -> Override | None:
    """Parse a word as an override; on failure adds to `problems` and returns None."""
    if not override_key(word):
        problems.append(Problem(word, "names no key; allowed is KEY=VALUE"))
        return None
    if len(word) > LONGEST:
        message = f"{len(word):,} characters; allowed are {LONGEST:,}, and -cd FOLDER reads files"
        problems.append(Problem(override_key(word)[:LONGEST], message))
        return None
    key = override_key(word)
    if key.startswith(("hydra.", "hydra/")) and key != SEARCHPATH:
        message = "is not read; a run's folder is run_dir, and -m takes hydra/launcher"
        own = (f"run_dir={word.partition('=')[2]}",) if key.endswith(".dir") else ()
        problems.append(Problem(key, message, instead=own))
        return None
    plain = word.lstrip("+")
    try:
        return parse([f"++{plain}" if _PART_KEYS.match(plain) else word])[0]
    except CompositionError:
        problems.append(_unreadable(word))
        return None


def _unreadable(word: str) -> Problem:
    """The problem of a word that Hydra can't parse, with the word that was meant if it is plain."""
    key, _, value = word.partition("=")
    message = f"{word} can't be read; allowed is KEY=VALUE, with quotes around other characters"
    for better in (value.rstrip(","), _quoted(value)) if value[:1] not in "[{(" else ():
        with suppress(*CompositionError):
            if better and parse([f"{key}={better}"]):
                return Problem(override_key(word), message, f"{key}={better}")
    return Problem(override_key(word), message)
