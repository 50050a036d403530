"""What the chosen options set of each other, and which of it is for options that are not chosen.

A file of `model`, `recipe` or `experiment` may choose options of other groups and set their keys.
Where another option is chosen in the end, these keys are not for it, and are left out.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlfactory.config._hydra import read_yaml
from rlfactory.config.dotted_keys import merged
from rlfactory.config.paths import packaged_folder
from rlfactory.config.problems import Problem, override_key
from rlfactory.config.schema.root import COMPONENTS

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Layer:
    """A file: the options that it, or a file it builds on, chooses, and the values that it sets."""

    group: str
    chosen: Mapping[str, str]
    values: Values

    def is_for(self, group: str, choices: Mapping[str, str]) -> bool:
        """Whether the keys that it sets of a group are keys of the group's chosen option."""
        return self.chosen.get(group, choices[group]) == choices[group]


def layers_of(choices: Mapping[str, str], folders: Sequence[Path]) -> list[Layer]:
    """The files of the chosen options, in the order in which they are merged."""
    root = read_yaml(packaged_folder("conf") / "config.yaml")["defaults"]
    listed = [name for entry in root if isinstance(entry, Mapping) for name in entry]
    added = [group for group in choices if group not in listed]  # by `+group=option`
    groups = [group for group in [*listed, *added] if group in choices]
    return [
        layer for group in groups for layer in _layers(group, f"{group}/{choices[group]}", folders)
    ]


def replaced_nodes(choices: Mapping[str, str], layers: Sequence[Layer]) -> dict[str, Values]:
    """The values of each group of which a file sets keys of an option that is not chosen."""
    nodes: dict[str, Values] = {}
    for group in (name for name in COMPONENTS if name in choices):
        setting = [layer for layer in layers if isinstance(layer.values.get(group), Mapping)]
        fitting = [layer for layer in setting if layer.is_for(group, choices)]
        if _has_no_options(group, layers):  # such as regularizer=none
            fitting = [layer for layer in fitting if layer.group == group]
        if len(fitting) < len(setting):
            # the option's own file comes first: its group may be listed after the others
            fitting.sort(key=lambda layer: layer.group != group)
            nodes[group] = {}
            for layer in fitting:
                nodes[group] = merged(nodes[group], layer.values[group])
    return nodes


def _has_no_options(group: str, layers: Sequence[Layer]) -> bool:
    """Whether the chosen option of a group has no key but `_target_`."""
    own = [layer.values.get(group) for layer in layers if layer.group == group]
    return bool(own) and all(isinstance(node, Mapping) and [*node] == ["_target_"] for node in own)


def other_model(
    choices: Mapping[str, str],
    layers: Sequence[Layer],
    typed: Sequence[str],
    folders: Sequence[Path],
) -> tuple[list[Problem], list[str]]:
    """The problems and notes of an experiment that is written for another model.

    A model of the same class takes the place of the experiment's, with its own `model.*` keys. One
    of another class is refused: steps, guidance, noise and schedule are those of the first.
    """
    if "model" not in choices:  # `~model`, which the plan reports
        return [], []
    named = [layer.chosen for layer in layers if layer.group == "experiment"]
    written_for = next((c["model"] for c in reversed(named) if "model" in c), choices["model"])
    if written_for == choices["model"]:
        return [], []
    chosen, experiment = choices["model"], choices["experiment"]
    if _target(written_for, folders) == _target(chosen, folders):
        return [], [
            f"model={chosen} takes the place of {experiment}'s {written_for}: model.* keys"
            f" are those of {chosen}, all others the experiment's"
        ]
    own = {override_key(word) for word in typed}
    wanted = [f"{group}={choices[group]}" for group in ("algo", "reward") if group not in own]
    kept = [word for word in typed if override_key(word) != "experiment"]
    message = (
        f"{experiment} is written for model={written_for}, and model={chosen} is another network:"
        f" leave out the one or the other; recipe={choices['recipe']} has settings for {chosen}"
    )
    fix = f"rlfactory {shlex.join([*kept, *wanted])}"
    return [Problem("experiment", message, fix)], []


def _target(model: str, folders: Sequence[Path]) -> object:
    """The class of an option of `model`."""
    nodes = [layer.values.get("model", {}) for layer in _layers("model", f"model/{model}", folders)]
    return next((node["_target_"] for node in reversed(nodes) if "_target_" in node), None)


def _layers(group: str, name: str, folders: Sequence[Path]) -> Iterator[Layer]:
    """An option's file, and the files of its group that it builds on, before it."""
    path = next((p for folder in folders if (p := folder / f"{name}.yaml").is_file()), None)
    content = {} if path is None else read_yaml(path, name.partition("/")[0])
    if path is None or not content:
        return
    chosen: dict[str, str] = {}
    for entry in content.get("defaults") or ():
        if isinstance(entry, str) and entry != "_self_":
            base = entry.lstrip("/") if entry[0] == "/" else f"{name.rpartition('/')[0]}/{entry}"
            for layer in _layers(group, base, folders):
                chosen |= layer.chosen
                yield layer
    for entry in content.get("defaults") or ():
        for key, option in entry.items() if isinstance(entry, Mapping) else ():
            if str(key).startswith("override "):
                chosen[str(key).removeprefix("override ").lstrip("/")] = str(option)
    values = {key: value for key, value in content.items() if key != "defaults"}
    if group in COMPONENTS and not is_global(path):
        values = {group: values}
    yield Layer(group, chosen, values)


def is_global(path: Path) -> bool:
    """Whether a file's keys are those of the root, by its line `# @package _global_`."""
    return _is_global(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=512)
def _is_global(path: Path, state: int) -> bool:
    """`state` is part of the cache key, since the file may be edited."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return any(line.replace(" ", "").startswith("#@package_global_") for line in lines)
