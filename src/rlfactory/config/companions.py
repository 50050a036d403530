"""Options that follow from those chosen: the recipe of a model and an algorithm, the form of an
option by what a model generates, the reward of an algorithm that needs none, and learning rates.

For `model=sd35 algo=grpo reward=ocr` the recipe is the first that there is of `sd35_grpo_ocr`,
`sd35_grpo` and `sd35` in `conf/recipe`, which nobody needs to name. Small models have none; a
family without any may share another's.

`algo=grpo` on a language model is `grpo_token`, `algo=opd` is `opd_token`, `algo=dpo` on an image
model `diffusion_dpo`; `reward=function` on an image model is `image_function`. An algorithm on data
has no reward unless one is chosen.

A file of `model`, `recipe` or `experiment` (a layer) may choose options of other groups and set
their keys. Where another option is chosen in the end, these keys are not for it, and are left out.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlfactory.config._hydra import read_yaml
from rlfactory.config.memory.model_parts import published
from rlfactory.config.paths import packaged_folder
from rlfactory.config.problems import Problem, override_key
from rlfactory.config.schema.root import COMPONENTS
from rlfactory.config.schema.signature import trait
from rlfactory.model.pipelines.families import FAMILIES
from rlfactory.utils.dotted_keys import merged

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


GLOBAL = "#@package_global_"
"""The line, without its spaces."""


def is_global(path: Path) -> bool:
    """Whether a file's keys are those of the root, by `# @package _global_` before all else."""
    return _is_global(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=512)
def _is_global(path: Path, state: int) -> bool:
    """`state` is part of the cache key, since the file may be edited."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    text = next((squeezed for line in lines if (squeezed := line.replace(" ", ""))), "")
    return text.startswith(GLOBAL)


MEDIA_FORMS = {
    "algo": {
        ("grpo", "texts"): "grpo_token",
        ("opd", "texts"): "opd_token",
        ("dpo", "images"): "diffusion_dpo",
        ("dpo", "videos"): "diffusion_dpo",
    },
    "reward": {
        ("function", "images"): "image_function",
        ("function", "videos"): "image_function",
        ("image_function", "texts"): "function",
        ("remote", "texts"): "remote_text",
        ("remote_text", "images"): "remote",
        ("remote_text", "videos"): "remote",
    },
}
"""By group, the option named and what the model generates: the option that is meant."""


def media_forms(values: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, str]:
    """The options by group that are meant for the model that is trained, where others are chosen.

    Args:
        values: the composed values.
        choices: the option chosen of each group.
    """
    node = values.get("model")
    asked = {group: choices.get(group, "") for group in MEDIA_FORMS}
    if not isinstance(node, Mapping) or all(
        name != asked[group] for group, forms in MEDIA_FORMS.items() for name, _ in forms
    ):
        return {}
    media = str(trait(node, "media"))
    found = {group: MEDIA_FORMS[group].get((name, media)) for group, name in asked.items()}
    return {group: option for group, option in found.items() if option is not None}


def lacks_reward(
    values: Mapping[str, Any],
    choices: Mapping[str, str],
    typed: Collection[str],
    layers: Sequence[Layer],
) -> bool:
    """Whether the reward is a default of the model's, and the algorithm learns from the data.

    Args:
        values: the composed values.
        choices: the option chosen of each group.
        typed: the keys that were typed.
        layers: the files of the chosen options; one of an experiment may choose a reward.
    """
    named = [layer for layer in layers if layer.group in ("experiment", "recipe")]
    chosen = [name for layer in named for name in layer.chosen]
    chosen += [key.partition(".")[0] for key in typed]
    if choices.get("reward") in (None, "none") or "reward" in chosen:
        return False
    return bool(trait(values.get("algo"), "samples_from") == "data")


def recipe_of(
    choices: Mapping[str, str], model_path: object, folders: Sequence[Path]
) -> str | None:
    """The recipe of the chosen model, algorithm and reward; None if there is none.

    Args:
        choices: the option chosen of each group.
        model_path: the path in the model's option; a published one shares its family's recipes.
        folders: the folders that hold options.
    """
    for name in _names(choices, model_path):
        if any((folder / "recipe" / f"{name}.yaml").is_file() for folder in folders):
            return name
    return None


def _names(choices: Mapping[str, str], model_path: object) -> Iterator[str]:
    algo, reward = choices.get("algo"), choices.get("reward")
    published_as = [name for name, p in published().items() if model_path in p["hub"]]
    shared = [f.recipes for f in FAMILIES if f.recipes and f.option == choices.get("model")]
    shared += ["causal_lm"] if choices.get("model") in LANGUAGE_MODELS else []
    for family in (choices.get("model"), *published_as, *shared):
        yield from (f"{family}_{algo}_{reward}", f"{family}_{algo}", f"{family}")


LANGUAGE_MODELS = ("gpt2", "qwen3", "smollm2")
"""Options whose recipes are those of causal_lm, where they have none of their own."""
AUTO = "auto"


def with_rates(
    values: Mapping[str, Any],
    choices: Mapping[str, str],
    layers: Sequence[Layer],
    typed: Collection[str],
) -> tuple[dict[str, Any], list[str]]:
    """The values with numbers for rates that are `auto`, and notes on rates that were replaced.

    A file that states `optimizer.lr` states it for the `model.finetune` of then. Where the other
    kind of training is typed, adapters would learn nothing, or all weights break, at that rate; it
    is then that of `learning_rate`.

    `layers` are the files that were merged, in their order; none: no file's rate is replaced.
    `typed` are the keys of the command line.
    """
    changed, notes = dict(values), list[str]()
    # a faulty or missing part is the plan's to report
    rates, model, optimizer = (
        _node(values, key) for key in ("learning_rate", "model", "optimizer")
    )
    finetune = model.get("finetune", "full")
    stated = None if "optimizer.lr" in typed else _stated_for(choices, layers)
    if stated is not None and stated != finetune and finetune in rates:
        notes = [
            f"optimizer.lr={rates[finetune]}, of model.finetune={finetune}:"
            f" {optimizer.get('lr')} is stated for {stated}"
        ]
        changed["optimizer"] = {**optimizer, "lr": rates[finetune]}
    elif optimizer.get("lr") == AUTO:
        changed["optimizer"] = {**optimizer, "lr": _rate(rates, finetune)}
    if model.get("value_lr") == AUTO:
        kind = "head" if model.get("value_path") is None else "full"
        changed["model"] = {**model, "value_lr": _rate(rates, kind)}
    return changed, notes


def with_tile(
    values: Mapping[str, Any], typed: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """The values with the batches and the step that `hardware.tile` asks for, if it is set, and a
    note on each that was `typed` and is another.
    """
    tile, sizes = _node(values, "hardware").get("tile"), ("micro_batch", "sample_batch")
    if tile is None:
        return dict(values), []
    notes = [
        f"{name}={values.get(name)} is not read: with hardware.tile every pass has {tile} rows"
        for name in sizes
        if name in typed and values.get(name) != tile
    ]
    changed: dict[str, Any] = {**values, **dict.fromkeys(sizes, tile)}
    if (optimizer := _node(values, "optimizer")).get("fused"):
        changed["optimizer"] = {**optimizer, "fused": False}
        if "optimizer.fused" in typed:
            why = "with hardware.tile, as a CPU rounds the last rows of each shard otherwise"
            notes.append(f"optimizer.fused=true is not read {why}")
    return changed, notes


def _rate(rates: Mapping[str, Any], kind: Any) -> Any:
    """A rate by kind; one that is no number, or of no kind, is reported at that key alone."""
    rate = rates.get(kind, 1.0) if rates else AUTO
    return rate if rate == AUTO or isinstance(rate, int | float) else 1.0


def _stated_for(choices: Mapping[str, str], layers: Sequence[Layer]) -> object:
    """The `model.finetune` for which a file states the learning rate; None if none states it."""
    finetune = stated = None
    for layer in layers:
        if layer.is_for("model", choices):
            finetune = _node(layer.values, "model").get("finetune", finetune)
        if layer.is_for("optimizer", choices):
            rate = _node(layer.values, "optimizer").get("lr")
            stated = stated if rate is None else None if rate == AUTO else finetune
    return stated


def _node(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    node = values.get(key)
    return node if isinstance(node, Mapping) else {}
