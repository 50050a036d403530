"""Words of the command line as other libraries' users type them: `train`, `--key=value`, files."""

import re
from collections.abc import Sequence
from pathlib import Path

from rlfactory.cli.hydra_flags import COMPLETION_FLAGS, NOT_OURS, SHORT, VALUES
from rlfactory.config.problems import PlanError, Problem

COMMANDS = (
    *("check", "list", "explain", "resume", "sample", "evaluate", "report", "compare", "import"),
    *("inspect", "export", "serve", "sweep", "sync", "reward-model", "verify"),
)
"""The commands besides training."""
PLANNED = ("check", "explain")
"""Commands whose words are overrides, as those of training; the others have flags and files."""
FORCE, TAKE_OVER = "--force", "--take-over"
LONG_FLAGS = frozenset(
    {
        *(*VALUES, *SHORT.values(), *NOT_OURS, *COMPLETION_FLAGS),
        *("--config-dir", "--help", "--version", FORCE, TAKE_OVER),
    }
)
"""Words that begin with `--` and set no key."""
CONFIG_FILE = re.compile(r"(?:--)?(?:config(?:_file)?=)?([^=]+\.(?:ya?ml|json|py)(?::\w+)?)")


def plain_words(words: Sequence[str]) -> list[str]:
    """The words without the word `train`, and `--key=value` as `key=value`."""
    rest = list(words[1:] if words[:1] == ["train"] else words)
    if rest and rest[0] in ("help", *COMMANDS) and rest[0] not in PLANNED:
        return rest
    return _joined([_undashed(word) for word in rest])


def refuse_config_files(words: Sequence[str]) -> None:
    """Raise PlanError for a word that is a configuration file of another library."""
    for word in words:
        if found := CONFIG_FILE.fullmatch(word):
            file = found[1].partition(":")[0]
            if not Path(file).expanduser().is_file():
                message = f"there is no file {file}, nor is this KEY=VALUE"
                raise PlanError([Problem(word, message, "rlfactory import --help")])
            message = "is a file; another library's configuration is translated into a command"
            raise PlanError([Problem(word, message, f"rlfactory import {found[1]}")])


def _undashed(word: str) -> str:
    flag, equals, value = word.partition("=")
    return f"{_key(flag)}={value}" if equals and _sets_key(flag) else word


def _joined(words: Sequence[str]) -> list[str]:
    """The words with `--key value` as `key=value`."""
    joined: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        alone = _sets_key(word) and "=" not in word
        if alone and rest and "=" not in rest[0] and not rest[0].startswith("-"):
            word = f"{_key(word)}={rest.pop(0)}"
        joined.append(word)
    return joined


def _sets_key(flag: str) -> bool:
    return flag.startswith("--") and flag not in LONG_FLAGS


def _key(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
