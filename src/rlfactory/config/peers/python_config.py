"""What other libraries are started by: shell commands, and configurations in Python, which are read
without being imported (those of ml_collections, and TRL's scripts).

Of Python are understood assignments to attributes, arithmetic on constants, calls of other
functions of the file and of those of files beside it. What else there is, is reported and not run.
"""

import ast
import math
import operator
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-[^}]*)?\}|(\w+))")
LAUNCHED = ("nproc[_-]per[_-]node", "num[_-]processes", "nnodes")
"""Options of launchers whose product is the number of processes."""
SET = ("NPROC_PER_NODE", "NNODES")
"""Variables that say the same."""


@dataclass
class Options:
    """What a command line or a script sets.

    Attributes:
        program: the words before the first option.
        values: the options by name, dotted ones for `KEY=VALUE` words.
        trainer: our algorithm, where a script's configuration class says it.
        unread: lines of a script that are not understood.
        launched: processes by variables of a launcher.
    """

    program: str
    values: dict[str, Any] = field(default_factory=dict)
    trainer: str | None = None
    unread: list[str] = field(default_factory=list)
    launched: int = 1

    def processes(self) -> int:
        """GPUs that the launcher before the script is told."""
        counts = [re.search(rf"--{name}[= ](\d+)", self.program) for name in LAUNCHED]
        return math.prod([self.launched, *(int(found[1]) for found in counts if found)])


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
    made.launched = math.prod(
        int(variables[name]) for name in SET if variables.get(name, "").isdigit()
    )
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


OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}
PURE: Mapping[str, Callable[..., Any]] = {f.__name__: f for f in (int, float, max, min, round)}


class Unreadable(ValueError):
    """An expression that is not understood."""


def functions(file: Path) -> dict[str, ast.FunctionDef]:
    """The functions of a file; SyntaxError if it is no Python."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


@dataclass
class PythonConfig:
    """A configuration, as the functions of a file make it.

    Attributes:
        file: where they stand.
        known: they, by name.
        unread: lines that were not understood.
        variables: the local variables of the function that was run.
    """

    file: Path
    known: Mapping[str, ast.FunctionDef]
    unread: list[str] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        """The attributes of what was returned, nested."""
        returned = self.variables.get("return")
        return returned if isinstance(returned, dict) else {}

    def run(self, name: str) -> "PythonConfig":
        """The configuration after a function was run."""
        for statement in self.known[name].body:
            try:
                self._statement(statement)
            except (Unreadable, TypeError, KeyError, ArithmeticError, ValueError):
                self.unread.append(ast.unparse(statement))
        return self

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                found = self._value(value)
                for target in targets:
                    self._assign(target, found)
            case ast.Return(value=ast.expr() as value):
                self.variables["return"] = self._value(value)
            case ast.If(test=test, body=body, orelse=other):
                for statement in body if self._value(test) else other:
                    self._statement(statement)
            case ast.Assert() | ast.Pass() | ast.Import() | ast.ImportFrom():
                pass
            case ast.Expr(value=ast.Constant()):
                pass  # a docstring
            case _:
                raise Unreadable(ast.unparse(node))

    def _assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                self.variables[name] = value
            case ast.Attribute(value=owner, attr=name):
                self._value(owner)[name] = value
            case _:
                raise Unreadable(ast.unparse(target))

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name) if name in self.variables:
                return self.variables[name]
            case ast.Attribute(value=owner, attr=name):
                return self._value(owner)[name]
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return [self._value(item) for item in items]
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                return {self._value(k): self._value(v) for k, v in pairs if k is not None}
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return OPERATORS[type(op)](self._value(operand))
            case (
                ast.BinOp(left=left, op=op, right=right)
                | ast.Compare(left=left, ops=[op], comparators=[right])
            ) if type(op) in OPERATORS:
                return OPERATORS[type(op)](self._value(left), self._value(right))
            case ast.IfExp(test=test, body=body, orelse=other):
                return self._value(body if self._value(test) else other)
            case ast.JoinedStr(values=parts):
                return "".join(self._text(part) for part in parts)
            case ast.Call(func=function, args=arguments, keywords=keywords):
                return self._call(ast.unparse(function), arguments, keywords)
        raise Unreadable(ast.unparse(node))

    def _text(self, part: ast.expr) -> str:
        return str(self._value(part.value if isinstance(part, ast.FormattedValue) else part))

    def _call(self, name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Any:
        if name in self.known:
            given = {str(k.arg): self._value(k.value) for k in keywords}
            called = PythonConfig(self.file, self.known, self.unread, given)
            made = called.returned(name)
            self.variables |= {k: v for k, v in called.variables.items() if k != "return"}
            return made
        if name.endswith("ConfigDict"):
            return dict(self._value(arguments[0])) if arguments else {}
        if name == "os.getcwd":
            return ""
        values = [self._value(argument) for argument in arguments]
        if name == "os.path.join":
            return "/".join(str(value) for value in values if value != "")
        if name in PURE:
            return PURE[name](*values)
        module, _, attribute = name.rpartition(".")
        beside = self.file.with_name(f"{module}.py")
        if module.isidentifier() and beside.is_file() and attribute in (known := functions(beside)):
            return PythonConfig(beside, known, self.unread).returned(attribute)
        raise Unreadable(name)

    def returned(self, name: str) -> dict[str, Any]:
        """The values that a function returns; Unreadable if it returns none."""
        if "return" not in self.run(name).variables:
            raise Unreadable(name)
        return self.values


def read(file: Path, name: str) -> PythonConfig:
    """The configuration that a function without arguments returns.

    Raises:
        KeyError: the file has no such function.
        SyntaxError: the file is no Python.
    """
    return PythonConfig(file, functions(file)).run(name)


def of_script(file: Path, trainers: Mapping[str, str]) -> Options | None:
    """The options of a script that trains by TRL; None if none does.

    Args:
        file: the script.
        trainers: our algorithms, by the names of configurations' classes.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"))
    calls = {_called(node): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    config = next((name for name in calls if name in trainers), None)
    if config is None:
        return None
    reader, made = _ScriptReader(file, {}), Options(file.name, trainer=trainers[config])
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            reader.assign(node.targets[0].id, node.value)
    made.values |= reader.keywords(calls[config], made)
    for name, call in calls.items():
        if name == "LoraConfig":
            renamed = {"r": "lora_r", "target_modules": "lora_target_modules"}
            options = reader.keywords(call, made)
            made.values |= {renamed.get(key, key): value for key, value in options.items()}
            made.values["use_peft"] = True
        elif name.endswith("Trainer"):
            used = {"train_dataset": "dataset_name", "model": "model_name_or_path"}
            used["reward_funcs"] = "reward_funcs"
            options = reader.keywords(call, made)
            made.values |= {used[key]: v for key, v in options.items() if key in used}
    return made


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


class _ScriptReader(PythonConfig):
    """A reader for which an unknown name is a function, such as a reward, and a call of a text,
    such as `load_dataset("NAME")`, is the text.
    """

    def assign(self, name: str, value: ast.expr) -> None:
        try:
            self.variables[name] = self._value(value)
        except (Unreadable, TypeError, KeyError, ArithmeticError, ValueError):
            self.variables[name] = Unreadable(name)

    def keywords(self, call: ast.Call, into: Options) -> dict[str, Any]:
        """The keyword arguments of a call; those that are not understood are noted."""
        found = {}
        for keyword in call.keywords:
            if keyword.arg in (None, "args", "peft_config", "processing_class", "tokenizer"):
                continue
            try:
                found[str(keyword.arg)] = self._value(keyword.value)
            except (Unreadable, TypeError, KeyError, ArithmeticError, ValueError):
                into.unread.append(f"{keyword.arg}={ast.unparse(keyword.value)}")
        return found

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name):
                value = self.variables.get(name, name)
                if isinstance(value, Unreadable):
                    raise value
                return value
            case ast.Call(args=[ast.Constant(value=str(text)), *_]):
                return text
        return super()._value(node)
