"""Which library a configuration file is for, and its translation by `libraries/*.yaml`.

A library's file has `defaults` (of options that a file leaves out, dotted), `words` (typed in any
case), `rows` (applied in order), then the table of names for what is left, and `last` rows;
`nothing` says why keys have no counterpart, by the end of their names. A file may take its rows and
reasons from that of another library (`like`). importer.py says what a row may have.
"""

import json
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.peers import computed, computed_texts
from rlfactory.config.peers.importer import Translation
from rlfactory.config.peers.shell_command import Options, PlainSafeLoader, of_shell
from rlfactory.config.problems import PlanError, Problem
from rlfactory.utils.dotted_keys import leaves, value_at
from rlfactory.utils.text import plural

Content = Mapping[str, Any]
_TARGET = re.compile(r"_target_: (?:\w+\.)*?(\w+)(?:\.from_\w+)?(?!\S)")
_VARIABLE = re.compile(r"\$\{oc\.(?:env:(\w+)(?:,([^{}]*))?|decode:([^{}]*))\}")
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")


def kinds() -> str:
    """The libraries whose files are read, each with their forms."""
    found = sorted(libraries().items(), key=lambda pair: pair[0].lower())
    return ", ".join(f"{name} ({data['reads']})" for name, data in found)


def translate_file(source: str, processes: int = 1) -> Translation:
    """Translate a configuration file of another library.

    Args:
        source: a path.
        processes: GPUs that a file is for which does not say it.

    Raises:
        PlanError: the file can't be read, or is none that is known.
    """
    path, _, function = source.partition(":")
    if path.endswith(".py"):
        raise PlanError([Problem(source, _is_python(path, function or "NAME"))])
    file = Path(source).expanduser()
    if not file.is_file():
        message = f"there is no file {source}; allowed are files of {kinds()}"
        raise PlanError([Problem(source, message)])
    try:
        made = _translated(file, processes)
    except (OSError, ValueError, yaml.YAMLError) as error:
        if isinstance(error, PlanError):
            raise
        message = f"can't be read: {' '.join(str(error).split())}; allowed are files of {kinds()}"
        raise PlanError([Problem(str(file), message)]) from error
    if made is None:
        message = f"has the keys of no known library; allowed are files of {kinds()}"
        raise PlanError([Problem(source, message)])
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
        content = json.loads(text) if file.suffix == ".json" else yaml.load(text, PlainSafeLoader)
        if isinstance(content, dict):
            return _of_keys(content, processes)
    return _of_command(of_shell(text), processes)


def _of_keys(content: Content, processes: int) -> Translation | None:
    """A YAML or JSON file's translation, by its keys."""
    if "trainer_type" in (content.get("train") or {}) and "model" in content:
        return translate("Flow-Factory", content, int(content.get("num_processes") or 1))
    if "actor_rollout_ref" in content:
        return translate("verl", content, processes)
    if "rlhf_type" in content or {"tuner_type", "train_type"} & {*content}:
        return of_swift(content, processes)
    if "rollout_batch_size" in content:
        return translate("OpenRLHF", content, processes)
    if {"sample", "train"} <= {*content}:
        return of_config_dict(content, processes)
    return of_trl(content, processes) if trainer_of(content) else None


def of_hydra(text: str) -> Content:
    """Options of a file with `_target_`s: the class under `target`, references resolved, variables
    by their defaults, by their values where they have none, else by their names.
    """
    text = _TARGET.sub(r"target: \1", text)
    while _VARIABLE.search(text):
        text = _VARIABLE.sub(_of_variable, text)
    content = yaml.load(text, PlainSafeLoader)
    resolved: Content = _resolved(content, content)
    return resolved


def _of_variable(found: re.Match[str]) -> str:
    name, default, decoded = found.groups()
    is_left = default is None and decoded is None
    value: str = os.environ.get(name, name) if is_left else default or decoded or ""
    return value


def _resolved(node: Any, root: Content) -> Any:
    if isinstance(node, dict):
        return {key: _resolved(value, root) for key, value in node.items()}
    found = _REFERENCE.fullmatch(node) if isinstance(node, str) else None
    return _resolved(value_at(root, found[1]), root) if found else node


def of_config_dict(content: Content, processes: int) -> Translation:
    """Translate a configuration of flow_grpo, or of a library that has most names from it."""
    is_nft, is_ddpo = "decay_type" in content, "eta" in content["sample"]
    library = "DiffusionNFT" if is_nft else "ddpo-pytorch" if is_ddpo else "flow_grpo"
    made = translate(library, content, processes)
    made.notes.append(f"for {plural(processes, 'GPU')}; others by --gpus N")
    return made


def _of_command(options: Options, processes: int) -> Translation | None:
    """The translation of a command, by its program."""
    config = str(options.values.get("config", ""))
    if not options.values:
        return None
    if ".py:" in config:
        path, _, function = config.partition(":")
        raise PlanError([Problem("--config", _is_python(path, function))])
    if config.endswith((".yaml", ".yml", ".json")):
        fix = f"rlfactory import {config}"
        raise PlanError([Problem("--config", f"the command reads {config}; import that file", fix)])
    processes = max(options.processes(), processes)
    program, values = options.program, options.values
    if "openrlhf" in program:
        return translate("OpenRLHF", values, processes)
    if "train_grpo" in program and "sampling_steps" in values:
        return translate("DanceGRPO", values, processes)
    if "swift" in program:
        named = {**values} if " rlhf" in program else {"rlhf_type": "sft", **values}
        return of_swift(named, processes)
    if found := re.match(r"trl (\w+)", program):
        return of_trl(values, processes, _chosen("trl", found[1]))
    if any(key.startswith("actor_rollout_ref.") for key in values):
        return translate("verl", values, processes)
    return of_trl(values, processes) if trainer_of(values) else None


def _chosen(key: str, kind: str) -> str:
    """The option of `algo` for a command of TRL or ms-swift; PlanError where it has none."""
    trainers = libraries()["TRL"]["trainers"]
    known: dict[str, str] = {own["command"]: algo for algo, own in trainers.items()}
    if kind.lower() not in known:
        message = f"is {kind.lower()}; known are {', '.join(known)}"
        raise PlanError([Problem(key, message, "rlfactory list")])
    return known[kind.lower()]


def trainer_of(content: Content) -> str | None:
    """The option of `algo` for a file of TRL, by its keys; None if it has none of them."""
    trainers = libraries()["TRL"]["trainers"]
    losses = content.get("loss_type")
    if {*computed_texts.PAIR_LOSSES} & {*([losses] if isinstance(losses, str) else losses or [])}:
        return "dpo"
    return next((a for a, own in trainers.items() if {*own["marks"]} & content.keys()), None)


def of_trl(content: Content, processes: int, trainer: str | None = None) -> Translation:
    """Translate a configuration of TRL, whose trainer its keys show unless it is known."""
    algo = trainer or trainer_of(content)
    if algo == "grpo_token" and content.get("rloo"):
        algo = "rloo"
    return translate("TRL", content, processes, algo)


def of_swift(content: Content, processes: int) -> Translation:
    """Translate the arguments of `swift rlhf` or `swift sft`."""
    kind = _chosen("rlhf_type", str(content.get("rlhf_type", "sft")))
    tuner = content.get("tuner_type", content.get("train_type", "lora"))
    rate = {"learning_rate": 1e-4 if tuner == "lora" else 1e-5} if kind != "ppo" else {}
    given = {**rate, **content, "use_peft": tuner == "lora"}
    for key in ("rlhf_type", "tuner_type", "train_type"):
        given.pop(key, None)
    if str(given.get("torch_dtype")) in ("bfloat16", "float16"):
        given["bf16" if given.pop("torch_dtype") == "bfloat16" else "fp16"] = True
    return translate("ms-swift", given, processes, kind)


@cache
def libraries() -> Mapping[str, Mapping[str, Any]]:
    """The data of each library, by its name."""
    files = sorted((Path(__file__).parent / "libraries").glob("*.yaml"))
    found = {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}
    for data in found.values():
        if other := found.get(data.get("like")):
            data["rows"] = [*data.get("first", ()), *other["rows"]]
            data["nothing"] = other["nothing"]
        if other := found.get(data.get("like_nothing")):
            data["nothing"] = {**other["nothing"], **data["nothing"]}
        if other := found.get(data.get("like_last")):
            data["last"] = other["last"]
    return {data["library"]: data for data in found.values()}


def translate(
    library: str,
    content: Mapping[str, Any],
    processes: int = 1,
    trainer: str | None = None,
) -> Translation:
    """Translate the options of a library, nested or dotted.

    Args:
        library: its name.
        content: its options.
        processes: the number of GPUs that they are for.
        trainer: the option of `algo`, where the options do not say it.

    Raises:
        PlanError: a choice is none that is here.
    """
    data = libraries()[library]
    renamed = data.get("renamed", {})
    given = {renamed.get(key, key): value for key, value in leaves(content)}
    own = data.get("trainers", {}).get(trainer, {}).get("defaults", {})
    base = libraries()["TRL"]["trainers"].get(trainer, {}).get("defaults", {})
    given = {**base, **data.get("defaults", {}), **own, **given}
    known = {**given, "library": library, "processes": processes}
    made = Translation(library, given, known, vars(computed) | vars(computed_texts))
    made.type(*data.get("words", "").split(), *([f"algo={trainer}"] if trainer else []))
    for row in data["rows"]:
        made.apply(row)
    made.translate_rest(data.get("names", [library]), data.get("nothing", {}))
    for row in data.get("last", ()):
        made.apply(row)
    return made
