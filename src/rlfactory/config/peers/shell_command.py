"""Commands that start other libraries: the options of a shell command."""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

LAUNCHED = ("nproc[_-]per[_-]node", "num[_-]processes", "nnodes")
"""Options of launchers, and variables, whose product is the number of processes."""
_LAUNCHER = re.compile(r"torchrun|accelerate|deepspeed|torch\.distributed\.\w+")
_PIECE = re.compile(
    r"""(?P<blank>[ \t\r]+|\\(?:\n|\Z))
    |(?P<comment>(?<![^\s;&|(])\#[^\n]*)
    |(?P<redirection>(?:(?<!\S)\d)?[<>]+&?[ \t]*[^\s;&|()]*)
    |(?P<end>[\n;&|]+)
    |(?P<list>[()])
    |(?P<single>'[^']*')
    |(?P<double>"(?:\\.|[^"\\])*")
    |(?P<value>\$)
    |(?P<plain>\\.|[^\s;&|()'"\\$<>]+)""",
    re.VERBOSE | re.DOTALL,
)
_ASSIGNED = re.compile(r"(\w+)(\+?)=(.*)", re.DOTALL)
_PARAMETER = re.compile(r"(\w+)(?:\[[@*]\])?(?:(:?[-=+])(.*))?", re.DOTALL)
_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul},
    **{ast.Div: operator.floordiv, ast.Mod: operator.mod},
}
_NEXT = "\0"
"""What stands between the words of a list."""


@dataclass
class Options:
    """The options that a command line sets.

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
    variables = {"HOME": str(Path.home()), "PWD": "."}
    made = _options(max(_commands(text, variables), key=len))
    told = " ".join([*(f"{name}={value}" for name, value in variables.items()), made.program])
    told = told.replace(_NEXT, " ")
    counts = (re.search(rf"\b{name}[= ](\d+)", told, re.IGNORECASE) for name in LAUNCHED)
    made.processes = math.prod(int(found[1]) for found in counts if found)
    return made


def _commands(text: str, variables: dict[str, str]) -> list[list[str]]:
    """The commands of a script in words, with the values of its variables, which are collected."""
    commands: list[list[str]] = [[]]
    word: str | None = None
    listed = ""  # the variable whose list is being read
    at = 0

    def end_word() -> None:
        nonlocal word
        assigned = None if word is None or commands[-1] or listed else _ASSIGNED.fullmatch(word)
        if assigned:
            old = variables.get(assigned[1], "") if assigned[2] else ""
            variables[assigned[1]] = old + assigned[3].replace(_NEXT, " ")
        elif word is not None and (commands[-1] or word != "export"):
            parts = [part for part in word.split(_NEXT) if part] if _NEXT in word else [word]
            if listed:
                variables[listed] += "".join(_NEXT + part for part in parts)
            else:
                commands[-1] += parts
        word = None

    while found := _PIECE.match(text, at):
        kind, piece, at = found.lastgroup, found[0], found.end()
        if kind == "value":
            at = _end(text, found.start())
            value = _filled(text[found.start() : at], variables)
            if "$(" not in value:  # outside quotes the words of a value are words
                value = re.sub(r"\s+", _NEXT, value)
            word = (word or "") + value if word or value else None
        elif (
            kind == "list" and piece == "(" and (named := re.fullmatch(r"(\w+)(\+?)=", word or ""))
        ):
            word, listed = None, named[1]
            variables[listed] = variables.get(listed, "") if named[2] else ""
        elif kind in ("blank", "redirection", "end") or (listed and piece == ")"):
            end_word()
            if kind == "list":
                listed = ""
            elif kind == "end" and not listed:
                commands.append([])
        elif kind == "double":
            value = re.sub(r'\\(["\\$`])|\\\n', r"\1", _filled(piece[1:-1], variables))
            is_word = word or value or "@" not in piece  # "$@" of nothing is none
            word = (word or "") + value if is_word else None
        elif kind != "comment":
            word = (word or "") + (piece[1:-1] if kind == "single" else re.sub(r"^\\", "", piece))
    if at < len(text):
        raise ValueError("a quote is not closed")
    end_word()
    return commands


def _filled(text: str, variables: Mapping[str, str]) -> str:
    """A text with the values of variables and of sums; what has none stays as it is written."""
    made, at = "", 0
    while found := re.compile(r"(?<!\\)\$").search(text, at):
        start, end = found.start(), _end(text, found.start())
        made += text[at:start] + _value(text[start:end], variables)
        at = end
    return made + text[at:]


def _end(text: str, start: int) -> int:
    """Where what begins with a `$` ends: a name, or a bracket and what closes it."""
    depth = 0
    for found in re.compile(r"[{}()]").finditer(text, start + 1):
        if depth == 0 and (found.start() != start + 1 or found[0] in "})"):
            break
        depth += 1 if found[0] in "{(" else -1
        if depth == 0:
            return found.end()
    named = re.compile(r"\w+|[@*#?]|").match(text, start + 1)
    return named.end() if named else start + 1


def _value(written: str, variables: Mapping[str, str]) -> str:
    """The value of `$NAME`, `${NAME}`, `${NAME:-OTHER}` or `$((FORMULA))`."""
    if written in ("$@", "$*"):  # what is typed after the script
        return ""
    if written == "$(pwd)":
        return variables["PWD"]
    if written.startswith("$("):
        return _number(written, variables)
    found = _PARAMETER.fullmatch(written[1:].removeprefix("{").removesuffix("}"))
    if found is None:
        return written
    value, mark, other = variables.get(found[1]), found[2] or "", (found[3] or "").strip("\"'")
    if mark.endswith("+"):
        return _filled(other, variables) if value else ""
    if value or (value is not None and not mark.startswith(":")):
        return value
    return _filled(other, variables) if mark else written


def _number(written: str, variables: Mapping[str, str]) -> str:
    """The number that `$((FORMULA))` or `$(expr FORMULA)` gives; else it stays as it is written."""
    formula = written[2:-1].removeprefix("expr ")
    plain = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda m: variables.get(m[1], m[0]), formula)
    if not re.fullmatch(r"[\d\s()+*/%-]{1,200}", plain):
        return written
    try:
        return str(_computed(ast.parse(plain.strip(), mode="eval").body))
    except (ArithmeticError, SyntaxError, KeyError):
        return written


def _computed(node: ast.AST) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_computed(node.left), _computed(node.right))
    raise KeyError(node)


def _options(words: list[str]) -> Options:
    begin = _begin(words)
    start = next((i for i in range(begin, len(words)) if _sets(words[i])), len(words))
    made, name = Options(" ".join(words[:start])), ""
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
            given, value = made.values[name], _read(word)
            several = [*(given if isinstance(given, list) else [given]), value]
            made.values[name] = value if given is True else several
    return made


def _begin(words: list[str]) -> int:
    """Where the script stands, or what is after it: the options of its launcher are before."""
    begin, has_option = 0, False
    for i, word in enumerate(words):
        if word in ("-m", "--module", "--"):
            begin, has_option = i + 1, False
        elif word.endswith(".py") and (
            not has_option or any(map(_LAUNCHER.fullmatch, words[begin:i]))
        ):
            return i + 1
        has_option = has_option or (_sets(word) and i >= begin)
    return begin


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
