"""Words of the command line: Hydra's flags, and other libraries' forms such as `--key=value`."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlfactory.config.problems import PlanError, Problem

WITH_FLAGS = {
    **dict.fromkeys(("report", "compare"), "rlfactory.report.command"),
    **dict.fromkeys(("resume", "sample", "inspect", "export"), "rlfactory.cli.run_commands"),
    **dict.fromkeys(("verify", "reward-model", "import"), "rlfactory.cli.run_commands"),
}
"""The commands that take flags and files, and the modules with their functions."""
WITH_WORDS = {
    **dict.fromkeys(("check", "estimate", "list"), "rlfactory.cli.app"),
    "explain": "rlfactory.cli.explain",
    **dict.fromkeys(("evaluate", "sync"), "rlfactory.cli.run_commands"),
    "serve": "rlfactory.tools.serve.command",
    "sweep": "rlfactory.sweep.command",
}
"""The same of those that take overrides and names, as training does."""
COMMANDS = {**WITH_FLAGS, **WITH_WORDS}
FUNCTIONS = {"import": "import_config", "list": "list_options"}
"""The functions of commands whose names can be none."""
FORCE, TAKE_OVER = "--force", "--take-over"
CONFIG_FILE = re.compile(r"(?:--)?(?:config(?:_file)?=)?([^=]+\.(?:ya?ml|json|py)(?::\w+)?)")
MULTIRUN_FLAGS = frozenset({"-m", "--multirun"})
COMPLETION_FLAGS = frozenset({"-sc", "--shell-completion"})
CONFIG_FLAGS = frozenset({"-c", "--cfg", "--cfg=job"})
NOT_OURS = {
    "--config-name": "experiment=NAME -cd FOLDER chooses a file of yours",
    "--config-path": "-cd FOLDER adds a folder of yours to the shipped one",
    "--dry-run": "rlfactory check prints the plan alone",
    "--experimental-rerun": "a run resumes by rlfactory resume RUN",
    "--hydra-help": "rlfactory --help lists the supported flags of Hydra",
    "--info": "rlfactory explain KEY names the files that set a key",
    "--run": "a command without a flag runs",
    "-cn": "experiment=NAME -cd FOLDER chooses a file of yours",
    "-cp": "-cd FOLDER adds a folder of yours to the shipped one",
}
"""Flags of Hydra that are not supported, and what to use instead."""
LONG_FLAGS = {
    *(*CONFIG_FLAGS, *MULTIRUN_FLAGS, *NOT_OURS, *COMPLETION_FLAGS, FORCE, TAKE_OVER),
    *("--best", "--config-dir", "--help", "--plan", "--version"),
}
"""Words that begin with `--` and set no key."""


def plain_words(words: Sequence[str]) -> list[str]:
    """The words without the word `train`, with `--key=value` and `--key value` as `key=value`."""
    rest = list(words[1:] if words[:1] == ["train"] else words)
    if rest and rest[0] in ("help", *WITH_FLAGS):
        return rest
    joined: list[str] = []
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        sets_key = flag.startswith("--") and flag not in LONG_FLAGS
        if sets_key and not equals and rest and "=" not in rest[0] and rest[0][:1] != "-":
            equals, value = "=", rest.pop(0)
        key = flag.removeprefix("--").replace("-", "_")
        joined.append(f"{key}={value}" if equals and sets_key else word)
    return joined


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


def flag_problems(words: Sequence[str]) -> Iterator[Problem]:
    """The problems of Hydra's flags that are not supported."""
    for word in words:
        name = word.partition("=")[0]
        if name in NOT_OURS:
            yield Problem(name, f"is no flag here: {NOT_OURS[name]}", "rlfactory --help")
