"""Which library a configuration file is for, and its translation."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.peers import dance, flow_factory, flow_grpo, language, trl
from rlfactory.config.peers.commands import Options, of_script, of_shell
from rlfactory.config.peers.translation import Fields, Translation, choice
from rlfactory.config.problems import PlanError, Problem

KINDS = (
    "YAML of Flow-Factory, TRL (JSON too), verl and ms-swift, FILE.py:NAME of flow_grpo,"
    " DiffusionNFT or ddpo-pytorch, a script that trains by TRL, or a shell script that starts trl,"
    " verl, OpenRLHF, ms-swift or DanceGRPO"
)


def translate_file(source: str, processes: int = 1) -> Translation:
    """Translate a configuration file of another library.

    Args:
        source: a path; `FILE.py:NAME` for a function that returns a configuration.
        processes: GPUs that a file is for which does not say it.

    Raises:
        PlanError: the file can't be read, or is none that is known.
    """
    path, _, name = source.partition(":")
    file = Path(path).expanduser()
    if not file.is_file():
        raise PlanError([Problem(source, f"there is no file {path}; allowed is {KINDS}")])
    try:
        made = _translated(file, name, processes)
    except (OSError, SyntaxError, ValueError, yaml.YAMLError) as error:
        if isinstance(error, PlanError):
            raise
        message = f"can't be read: {' '.join(str(error).split())}; allowed is {KINDS}"
        raise PlanError([Problem(str(file), message)]) from error
    if made is None:
        raise PlanError([Problem(source, f"has the keys of no known library; allowed is {KINDS}")])
    return made


def _translated(file: Path, name: str, processes: int) -> Translation | None:
    if file.suffix == ".py":
        script = None if name else of_script(file)
        if script is None:
            return flow_grpo.translate(file, name or "get_config", processes)
        made = trl.translate(script.values, processes, script.trainer)
        made.notes += [f"not understood: {line}" for line in script.unread]
        return made
    text = file.read_text(encoding="utf-8")
    is_shell = file.suffix in (".sh", ".bash") or text.startswith("#!")
    content = None if is_shell else _read(file, text)
    if isinstance(content, dict):
        return _of_keys(content, processes)
    return _of_command(of_shell(text), processes)


def _of_keys(content: Mapping[str, Any], processes: int) -> Translation | None:
    """A YAML or JSON file's translation, by its keys."""
    if "trainer_type" in (content.get("train") or {}) and "model" in content:
        return flow_factory.translate(content, Path())
    if "actor_rollout_ref" in content:
        return language.translate("verl", content, processes)
    if "rlhf_type" in content or {"tuner_type", "train_type"} & {*content}:
        return language.swift(content, processes)
    if "rollout_batch_size" in content:
        return language.translate("OpenRLHF", content, processes)
    return trl.translate(content, processes) if trl.is_config(content) else None


def _of_command(options: Options, processes: int) -> Translation | None:
    """The translation of a command, by its program."""
    config = str(options.values.get("config", ""))
    if not options.values:
        return None
    if ".py:" in config or config.endswith((".yaml", ".yml", ".json")):
        fix = f"rlfactory import {config}"
        raise PlanError([Problem("--config", f"the command reads {config}; import that file", fix)])
    processes = max(options.processes(), processes)
    program, values = options.program, options.values
    if "openrlhf" in program:
        return language.translate("OpenRLHF", values, processes)
    if "train_grpo" in program and "sampling_steps" in values:
        return dance.translate(values, processes)
    if "swift" in program:
        named = {**values} if " rlhf" in program else {"rlhf_type": "sft", **values}
        return language.swift(named, processes)
    if found := re.match(r"trl (\w+)", program):
        kind = choice(Fields({"trl": found[1]}), "trl", language.TRAINERS)
        return trl.translate(values, processes, kind)
    if any(key.startswith("actor_rollout_ref.") for key in values):
        return language.translate("verl", values, processes)
    return trl.translate(values, processes) if trl.is_config(values) else None


def _read(file: Path, text: str) -> Any:
    """The content of a file by its suffix; ValueError if it is another."""
    return json.loads(text) if file.suffix == ".json" else yaml.load(text, _PlainSafeLoader)


class _PlainSafeLoader(yaml.SafeLoader):
    """YAML with numbers such as 1e-4, which PyYAML takes for texts."""


_PlainSafeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)
