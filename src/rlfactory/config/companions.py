"""Options that follow from those chosen: the recipe of a model and an algorithm, the form of an
option by what a model generates, the reward of an algorithm that needs none, and learning rates.

For `model=sd35 algo=grpo reward=ocr` the recipe is the first that there is of `sd35_grpo_ocr`,
`sd35_grpo` and `sd35` in `conf/recipe`, which nobody needs to name. Small models have none; a
family without any may share another's.

`algo=grpo` on a language model is `grpo_token`, `algo=opd` is `opd_token`, `algo=dpo` on an image
model `diffusion_dpo`; `reward=function` on an image model is `image_function`. An algorithm on data
has no reward unless one is chosen.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlfactory.config.composition import ComposedConfig, Composition
from rlfactory.config.memory.model_parts import published
from rlfactory.config.options import options
from rlfactory.config.problems import Problem, override_key
from rlfactory.config.schema.signature import trait
from rlfactory.model.pipelines.families import FAMILIES
from rlfactory.utils.dotted_keys import value_at


def other_model(
    found: Composition, typed: Sequence[str], places: Sequence[str]
) -> tuple[list[Problem], list[str]]:
    """The problems and notes of an experiment that is written for another model.

    A model of the same class takes the place of the experiment's, with its own `model.*` keys. One
    of another class is refused: steps, guidance, noise and schedule are those of the first.
    """
    choices = found.choices
    named = [layer.chosen for layer in found.layers if layer.group == "experiment"]
    written_for = next((c["model"] for c in reversed(named) if "model" in c), None)
    if written_for in (None, choices.get("model")) or "model" not in choices:
        return [], []  # `~model`, which the plan reports
    chosen, experiment = choices["model"], choices["experiment"]
    its_own = Composition.of([f"model={written_for}"], places).values
    if value_at(its_own, "model._target_") == value_at(found.values, "model._target_"):
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


MEDIA_FORMS = {
    ("algo", "grpo"): {"texts": "grpo_token"},
    ("algo", "opd"): {"texts": "opd_token"},
    ("algo", "dpo"): {"images": "diffusion_dpo", "videos": "diffusion_dpo"},
    ("reward", "function"): {"images": "image_function", "videos": "image_function"},
    ("reward", "image_function"): {"texts": "function"},
    ("reward", "remote"): {"texts": "remote_text"},
    ("reward", "remote_text"): {"images": "remote", "videos": "remote"},
}
"""By group and option named, and what the model generates: the option that is meant."""


def media_forms(found: Composition) -> dict[str, str]:
    """The options by group that are meant for the chosen model, where others are chosen."""
    asked = [choice for choice in found.choices.items() if choice in MEDIA_FORMS]
    media = str(trait(found.values.get("model"), "media")) if asked else ""
    forms = {choice[0]: MEDIA_FORMS[choice].get(media) for choice in asked}
    return {group: option for group, option in forms.items() if option is not None}


def lacks_reward(found: Composition, typed: Collection[str]) -> bool:
    """Whether the reward is a default of the model's, and the algorithm learns from the data.

    `typed` are the keys that were typed; a file of an experiment may choose a reward too.
    """
    named = [layer for layer in found.layers if layer.group in ("experiment", "recipe")]
    chosen = [name for layer in named for name in layer.chosen]
    chosen += [key.partition(".")[0] for key in typed]
    is_default = found.choices.get("reward") not in (None, "none") and "reward" not in chosen
    return is_default and trait(found.values.get("algo"), "samples_from") == "data"


def recipe_of(found: Composition, places: Sequence[str]) -> str | None:
    """The recipe of the chosen model, algorithm and reward; None if there is none."""
    known = options("recipe", places)
    # a published model shares its family's recipes, and an experiment's those of its own model
    paths = (value_at(layer.values, "model.path") for layer in reversed(found.layers))
    path = next((path for path in paths if path is not None), None)
    return next((name for name in _names(found.choices, path) if name in known), None)


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


def with_rates(composed: ComposedConfig, typed: Collection[str]) -> ComposedConfig:
    """The configuration with numbers for rates that are `auto`, and notes on replaced rates.

    A file that states `optimizer.lr` states it for the `model.finetune` of then. Where the other
    kind of training is typed, adapters would learn nothing, or all weights break, at that rate; it
    is then that of `learning_rate`. `typed` are the keys of the command line.
    """
    values = composed.values
    changed, notes = dict(values), list[str]()
    # a faulty or missing part is the plan's to report
    rates, model, optimizer = (
        _node(values, key) for key in ("learning_rate", "model", "optimizer")
    )
    finetune = model.get("finetune", "full")
    stated = None if "optimizer.lr" in typed else _stated_for(composed.composition)
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
    return replace(composed, values=changed, notes=[*composed.notes, *notes])


def with_tile(composed: ComposedConfig, typed: Collection[str]) -> ComposedConfig:
    """The configuration with the batches and the step that `hardware.tile`, if it is set, asks for,
    and notes on those that were `typed`.
    """
    values = composed.values
    tile, sizes = _node(values, "hardware").get("tile"), ("micro_batch", "sample_batch")
    if tile is None:
        return composed
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
    return replace(composed, values=changed, notes=[*composed.notes, *notes])


def _rate(rates: Mapping[str, Any], kind: Any) -> Any:
    """A rate by kind; one that is no number, or of no kind, is reported at that key alone."""
    rate = rates.get(kind, 1.0) if rates else AUTO
    return rate if rate == AUTO or isinstance(rate, int | float) else 1.0


def _stated_for(found: Composition | None) -> object:
    """The `model.finetune` for which a file states the learning rate; None if none states it."""
    finetune = stated = None
    if found is None:
        return None
    for layer in found.layers:
        if layer.is_for("model", found.choices):
            finetune = _node(layer.values, "model").get("finetune", finetune)
        if layer.is_for("optimizer", found.choices):
            rate = _node(layer.values, "optimizer").get("lr")
            stated = stated if rate is None else None if rate == AUTO else finetune
    return stated


def _node(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    node = values.get(key)
    return node if isinstance(node, Mapping) else {}
