"""Which library a configuration file is for, and its translation by `libraries/*.yaml`.

A library's file has `known_by` (keys, of which a file has all; several such lists), `program` (in a
command), `but` (in a command of another library), `defaults` (of options that a file leaves out,
dotted), `words` (typed in any case), `rows` (applied in order), then the table of names for what is
left, and `last` rows; `nothing` says why keys have no counterpart, by the end of their names.
`include` stands for the rows or reasons of another file. importer.py says what a row may have.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import filter as matching
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.peers import computed
from rlfactory.config.peers.importer import Translation
from rlfactory.config.peers.shell_command import Options, PlainSafeLoader, of_shell
from rlfactory.config.problems import PlanError, Problem
from rlfactory.utils.data_files import load_yaml
from rlfactory.utils.dotted_keys import leaves, value_at
from rlfactory.utils.text import plural

Content = Mapping[str, Any]
_TARGET = re.compile(r"_target_: (?:\w+\.)*?(\w+)(?:\.from_\w+)?(?!\S)")
_VARIABLE = re.compile(r"\$\{oc\.(?:env:(\w+)(?:,([^{}]*))?|decode:([^{}]*))\}")
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_OF_TRANSFORMERS = ("model_name_or_path", "per_device_train_batch_size", "output_dir")
_COMPUTED = re.compile(r"\$(?:[({]|\w{3,})")
"""What a shell puts in."""


def kinds() -> str:
    """The libraries whose files are read, each with their forms."""
    found = sorted(libraries().items(), key=lambda pair: pair[0].lower())
    return ", ".join(f"{name} ({data['reads']})" for name, data in found)


def translate_file(source: str, processes: int = 1) -> Translation:
    """Translate another library's configuration file, for `processes` GPUs if it does not say it.

    Raises:
        PlanError: the file can't be read, or is none that is known.
    """
    path, _, function = source.partition(":")
    allowed = f"allowed are files of {kinds()}"
    if path.endswith(".py"):
        raise PlanError([Problem(source, _is_python(path, function or "NAME"))])
    file = Path(source).expanduser()
    if not file.is_file():
        raise PlanError([Problem(source, f"there is no file {source}; {allowed}")])
    try:
        made = _translated(file, processes)
    except PlanError:
        raise
    except (OSError, ValueError, yaml.YAMLError) as error:
        message = f"can't be read: {' '.join(str(error).split())}; {allowed}"
        raise PlanError([Problem(str(file), message)]) from error
    if made is None:
        raise PlanError([Problem(source, f"has the keys of no known library; {allowed}")])
    return made


def _is_python(path: str, function: str) -> str:
    """The message on a configuration in Python, which would have to be run to be read."""
    written = f"runpy.run_path('{path}')['{function}']().to_json()"
    return (
        "is Python, which is not run here. Where its library is installed, this writes what the"
        f' function {function} returns: python -c "import runpy; print({written})" >'
        f" {function}.json; type rlfactory import {function}.json then. The arguments of a script's"
        " GRPOConfig(...) and its kin are read from a YAML file"
    )


def _translated(file: Path, processes: int) -> Translation | None:
    text = file.read_text(encoding="utf-8")
    is_shell = file.suffix in (".sh", ".bash") or text.startswith("#!")
    if "_target_: unirl." in text:
        return translate("UniRL", of_hydra(text))
    if not is_shell:
        content = _parsed(text, file)
        if isinstance(content, dict):
            return of_keys(content, processes)
    return _of_command(of_shell(text), processes, file.resolve().parents)


def _parsed(text: str, file: Path) -> Any:
    return json.loads(text) if file.suffix == ".json" else yaml.load(text, PlainSafeLoader)


def library_of(content: Content, program: str) -> str | None:
    """The library of options, by the program that they are given to or by most of their keys."""
    keys, data = [key for key, _ in leaves(content)], libraries()
    programs = {name: own["program"] for name, own in data.items() if "program" in own}
    if named := next((n for n, pattern in programs.items() if re.search(pattern, program)), None):
        return named
    known = {
        name: len(wanted)
        for name, own in data.items()
        if own.get("but", "\0") not in program
        for wanted in map(str.split, own.get("known_by", ()))
        if all(matching(keys, key) for key in wanted)
    }
    return max(known, key=lambda name: known[name], default=None)


def of_keys(content: Content, processes: int, program: str = "") -> Translation | None:
    """The translation of options, by the program that they are given to and by their keys."""
    library = library_of(content, program)
    trainer = None
    if library is None or library == "TRL":
        trainer = _trainer_of_program(program, content) or trainer_of(content)
        trainer = "rloo" if trainer == "grpo_token" and content.get("rloo") else trainer
        library = "TRL" if trainer else None
        if trainer is None and "model_name_or_path" in content:
            message = "names no trainer: import a shell script with `trl COMMAND --config FILE`"
            raise PlanError([Problem("model_name_or_path", message)])
        processes = int(content.get("num_processes") or processes)
    elif library == "ms-swift":
        trainer = _chosen("rlhf_type", str(content.get("rlhf_type", "sft")))
    elif library == "Flow-Factory":
        processes = int(content.get("num_processes") or 1)
    return None if library is None else translate(library, content, processes, trainer, program)


def _trainer_of_program(program: str, content: Content) -> str | None:
    """The option of `algo` by a command of TRL, or by the name of a script such as `dpo_vlm.py`."""
    if found := re.search(r"\btrl (\w+)", program):
        return _chosen("trl", found[1])
    script, data = program.rpartition(" ")[2], libraries()["TRL"]
    if not script.endswith(".py") or not {*_OF_TRANSFORMERS} & {*content}:
        return None
    words = re.findall("[a-z]+", script.lower().rpartition("/")[2])
    # another trainer first: online_dpo.py does not learn from given pairs
    known = [*data["elsewhere"], *(own["command"] for own in data["trainers"].values())]
    return next((_chosen(script, word) for word in known if word in words), None)


def of_hydra(text: str) -> Content:
    """Options of a file with `_target_`s: the class under `target`, references resolved, variables
    by their defaults, else their values, else their names.
    """
    text = _TARGET.sub(r"target: \1", text)
    while _VARIABLE.search(text):
        text = _VARIABLE.sub(_of_variable, text)
    content = yaml.load(text, PlainSafeLoader)
    return _resolved(content, content)


def _of_variable(found: re.Match[str]) -> str:
    name, *given = found.groups()
    return os.environ.get(name, name) if given == [None, None] else "".join(filter(None, given))


def _resolved(node: Any, root: Content) -> Any:
    if isinstance(node, dict):
        return {key: _resolved(value, root) for key, value in node.items()}
    found = _REFERENCE.fullmatch(node) if isinstance(node, str) else None
    return _resolved(value_at(root, found[1]), root) if found else node


def _of_command(options: Options, processes: int, folders: Iterable[Path]) -> Translation | None:
    """The translation of a command, by its program, with the options of a file that it reads, from
    the working directory or one of the folders.
    """
    config = str(options.values.get("config", ""))
    if not options.values:
        return None
    if ".py:" in config:
        path, _, function = config.partition(":")
        raise PlanError([Problem("--config", _is_python(path, function))])
    content = options.values
    if config.endswith((".yaml", ".yml", ".json")):
        places = [folder / config for folder in (Path(), *folders)]
        read = next((place for place in places if place.is_file()), None)
        if read is None:
            message = f"the command reads {config}, which is not here; import that file"
            raise PlanError([Problem("--config", message, f"rlfactory import {config}")])
        of_file = _parsed(read.read_text(encoding="utf-8"), read) or {}
        if not isinstance(of_file, dict):
            raise PlanError([Problem("--config", f"{read} has no options")])
        own = {key: value for key, value in content.items() if key != "config"}
        content = {**of_file, **own}
    made = of_keys(content, max(options.processes, processes), options.program)
    if made is not None:
        unknown = [word for word in made.words.values() if _COMPUTED.search(word)]
        made.notes += [f"{word}: the script, which is not run, says no value" for word in unknown]
    return made


def _chosen(key: str, kind: str) -> str:
    """The option of `algo` for a trainer of TRL or ms-swift; PlanError where it has none."""
    trainers = libraries()["TRL"]["trainers"]
    known: dict[str, str] = {own["command"]: algo for algo, own in trainers.items()}
    if kind.lower() not in known:
        message = f"is {kind.lower()}; known are {', '.join(known)}"
        raise PlanError([Problem(key, message, "rlfactory list")])
    return known[kind.lower()]


def trainer_of(content: Content) -> str | None:
    """The option of `algo` for a file of TRL, by its keys; None if it has none of them.

    Raises:
        PlanError: a key is that of a trainer that is not here.
    """
    trainers, others = libraries()["TRL"]["trainers"], libraries()["TRL"]["elsewhere"]
    for kind, key in ((kind, key) for kind, marks in others.items() for key in marks):
        if key in content:
            return _chosen(key, kind)
    losses, online = content.get("loss_type"), {*trainers["online_dpo"]["marks"]}
    if not online & content.keys() and {*computed.PAIR_LOSSES} & {
        *([losses] if isinstance(losses, str) else losses or [])
    }:
        return "dpo"
    return next((a for a, own in trainers.items() if {*own["marks"]} & content.keys()), None)


@cache
def libraries() -> Mapping[str, Mapping[str, Any]]:
    """The data of each library, by its name."""
    files = sorted((Path(__file__).parent / "libraries").glob("*.yaml"))
    found = {file.stem: load_yaml(file.read_text(encoding="utf-8")) for file in files}
    for data in found.values():
        for name in ("nothing", "renamed"):
            own = data.get(name, {})
            data[name] = {**found.get(own.get("include"), {}).get(name, {}), **own}
        data |= {name: [*_rows(data.get(name, ()), found)] for name in ("rows", "last")}
    return {data["library"]: data for data in found.values()}


def _rows(rows: Iterable[Content], found: Mapping[str, Content]) -> Iterator[Content]:
    """Rows with those of another file in the place of `include: FILE NAME`."""
    for row in rows:
        file, _, name = row.get("include", "").partition(" ")
        yield from _rows(found[file][name], found) if file else [row]


def translate(
    library: str,
    content: Content,
    processes: int = 1,
    trainer: str | None = None,
    program: str = "",
) -> Translation:
    """Translate the options of a library, nested or dotted, that are for a number of GPUs.

    `trainer` is the option of `algo`, where the options do not say it.

    Raises:
        PlanError: a choice is none that is here.
    """
    data = libraries()[library]
    renamed = data.get("renamed", {})
    given = {renamed.get(key, key): value for key, value in leaves(content)}
    own = data.get("trainers", {}).get(trainer, {}).get("defaults", {})
    base = libraries()["TRL"]["trainers"].get(trainer, {}).get("defaults", {})
    given = {**base, **data.get("defaults", {}), **own, **given}
    known = {**given, "library": library, "program": program, "processes": processes}
    made = Translation(library, given, known, vars(computed))
    made.type(*data.get("words", "").split(), *([f"algo={trainer}"] if trainer else []))
    for row in data["rows"]:
        made.apply(row)
    made.translate_rest(data.get("names", [library]), data["nothing"])
    for row in data["last"]:
        made.apply(row)
    if data.get("by_gpu"):
        made.notes.append(f"for {plural(processes, 'GPU')}; others by --gpus N")
    return made
