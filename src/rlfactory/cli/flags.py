"""Words of the command line: Hydra's flags, and other libraries' forms such as `--key=value`."""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlfactory.config.problems import PlanError, Problem, override_key, unknown_name

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
VALUES = ("--cfg", "--info", "--package")
"""The flags with a value."""
SHORT = {"-c": "--cfg", "-i": "--info", "-p": "--package", "-m": "--multirun", "-r": "--resolve"}
MULTIRUN_FLAGS = frozenset({"-m", "--multirun"})
COMPLETION_FLAGS = frozenset({"-sc", "--shell-completion"})
HYDRA_FLAGS = {*VALUES, *SHORT, *MULTIRUN_FLAGS, *COMPLETION_FLAGS} - {"-p", "-r", "--package"}
"""Flags by which a command is Hydra's; `--package` and `--resolve` only add to `--cfg`."""
NOT_OURS = {
    "--config-name": "experiment=NAME -cd FOLDER chooses a file of yours",
    "--config-path": "-cd FOLDER adds a folder of yours to the shipped one",
    "--dry-run": "rlfactory check prints the plan alone",
    "--experimental-rerun": "a run resumes by rlfactory resume RUN",
    "--hydra-help": "rlfactory --help lists the supported flags of Hydra",
    "--run": "a command without a flag runs",
    "-cn": "experiment=NAME -cd FOLDER chooses a file of yours",
    "-cp": "-cd FOLDER adds a folder of yours to the shipped one",
}
"""Flags of Hydra that are not supported, and what to use instead."""
SWEEPER_PACKAGES = {name: f"hydra-{name}-sweeper" for name in ("ax", "nevergrad", "optuna")}
LONG_FLAGS = {*VALUES, *SHORT.values(), *NOT_OURS, *COMPLETION_FLAGS, FORCE, TAKE_OVER} | {
    "--best",
    "--config-dir",
    "--help",
    "--plan",
    "--version",
}
"""Words that begin with `--` and set no key."""


def plain_words(words: Sequence[str]) -> list[str]:
    """The words without the word `train`, and `--key=value` as `key=value`."""
    rest = list(words[1:] if words[:1] == ["train"] else words)
    if rest and rest[0] in ("help", *WITH_FLAGS):
        return rest
    return _joined(rest)


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


def _joined(words: Sequence[str]) -> list[str]:
    """The words with `--key=value` and `--key value` as `key=value`."""
    joined: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        if _sets_key(flag) and not equals and rest and "=" not in rest[0] and rest[0][:1] != "-":
            equals, value = "=", rest.pop(0)
        key = flag.removeprefix("--").replace("-", "_")
        joined.append(f"{key}={value}" if equals and _sets_key(flag) else word)
    return joined


def _sets_key(flag: str) -> bool:
    return flag.startswith("--") and flag not in LONG_FLAGS


def flags_first(words: Sequence[str]) -> list[str]:
    """The words with flags and their values before the overrides, as argparse wants them."""
    flags, others = list[str](), list[str]()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            others.append(word)
            continue
        flags.append(word)
        takes_value = SHORT.get(word, word) in VALUES
        if takes_value and rest and "=" not in rest[0] and not rest[0].startswith("-"):
            flags.append(rest.pop(0))
    return [*flags, *others]


def flag_problems(words: Sequence[str]) -> Iterator[Problem]:
    """The problems of Hydra's flags that are not supported; Hydra checks the values of others."""
    for word in words:
        name = word.partition("=")[0]
        if name in NOT_OURS:
            yield Problem(name, f"is no flag here: {NOT_OURS[name]}", "rlfactory --help")


def plugin_problems(words: Sequence[str]) -> Iterator[Problem]:
    """The problems of launchers and sweepers that are not installed, or can't work here."""
    for word in words:
        key, value = override_key(word), word.partition("=")[2]
        if key not in ("hydra/launcher", "hydra/sweeper") or value == "basic":
            continue
        from rlfactory.sweep.arguments import LAUNCHERS, is_installed  # imports Hydra

        launchers = {name: package for name, package in LAUNCHERS.items() if package}
        packages = launchers if key == "hydra/launcher" else SWEEPER_PACKAGES
        if value not in packages:
            yield unknown_name(key, key.partition("/")[2], value, ["basic", *packages])
        elif not is_installed(packages[value]):
            search = "; rlfactory sweep searches without it" if key == "hydra/sweeper" else ""
            message = f"{value} is not installed: pip install {packages[value]}{search}"
            has_interval = any("interval(" in other for other in words)  # basic can't draw from it
            yield Problem(key, message, "" if has_interval else f"{key}=basic")
        elif value == "submitit_slurm" and shutil.which("srun") is None:
            message = (
                "is submitit_slurm, but this machine has no srun: it is not part of a SLURM cluster"
            )
            yield Problem(key, message, f"{key}=submitit_local")
