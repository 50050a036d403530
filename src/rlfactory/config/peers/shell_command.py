"""What other libraries are started by: the options of a shell command."""

import math
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-[^}]*)?\}|(\w+))")
LAUNCHED = ("nproc[_-]per[_-]node", "num[_-]processes", "nnodes")
"""Options of launchers, and variables, whose product is the number of processes."""


@dataclass
class Options:
    """What a command line sets.

    Attributes:
        program: the words before the first option.
        values: the options by name, dotted ones for `KEY=VALUE` words.
        processes: GPUs that the launcher before the script, or a variable, is told.
    """

    program: str
    values: dict[str, Any] = field(default_factory=dict)
    processes: int = 1


def of_shell(text: str) -> Options:
    """The options of the longest command of a shell script; ValueError if a quote is not closed."""
    plain = re.sub(r"(?m)^[ \t]*#.*$|\\\n", " ", text)
    lexer = shlex.shlex(plain, posix=True, punctuation_chars="\n;&|")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    variables = {"HOME": str(Path.home())}
    commands: list[list[str]] = [[]]
    for token in lexer:
        word = _VARIABLE.sub(lambda m: variables.get(m[1] or m[2], m[0]), token)
        if token.strip("\n;&|") == "":
            commands.append([])
        elif commands[-1] or not (found := re.fullmatch(r"(\w+)=(.*)", word, re.DOTALL)):
            commands[-1] += [word] if word != "export" else []
        else:
            variables[found[1]] = found[2]
    made = _options(max(commands, key=len))
    told = " ".join([*(f"{name}={value}" for name, value in variables.items()), made.program])
    counts = (re.search(rf"\b{name}[= ](\d+)", told, re.IGNORECASE) for name in LAUNCHED)
    made.processes = math.prod(int(found[1]) for found in counts if found)
    return made


def _options(words: list[str]) -> Options:
    first = next((i for i, w in enumerate(words) if _sets(w)), len(words))
    # options of a launcher stand before the script
    scripts = [
        i + 1 for i, word in enumerate(words) if word.endswith(".py") or word in ("-m", "--")
    ]
    start = max([first, *scripts]) if scripts else first
    made, name = Options(" ".join(words[: start + 1])), ""
    for word in words[start:]:
        if word.startswith("--"):
            name, mark, value = word[2:].partition("=")
            name = name.replace("-", "_")
            made.values[name] = _read(value) if mark else True
            name = "" if mark else name
        elif "=" in word and not name:
            key, _, value = word.lstrip("+").partition("=")
            made.values[key] = _read(value)
        elif name:
            given = made.values[name]
            made.values[name] = (
                _read(word)
                if given is True
                else [*(given if isinstance(given, list) else [given]), _read(word)]
            )
    return made


def _sets(word: str) -> bool:
    return word.startswith("--") or re.match(r"\+*[\w.]+\.[\w.]+=", word) is not None


def _read(text: str) -> Any:
    try:
        return yaml.load(text, PlainSafeLoader)
    except yaml.YAMLError:
        return text


class PlainSafeLoader(yaml.SafeLoader):
    """YAML with numbers such as 1e-4, which PyYAML takes for texts."""


_NUMBER = re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$")
PlainSafeLoader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+0123456789"))
