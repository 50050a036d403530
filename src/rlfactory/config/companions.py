"""Options that follow from those chosen: the recipe of a model and an algorithm, the form of an
option by what a model generates, the reward of an algorithm that needs none, and learning rates.

For `model=sd35 algo=grpo reward=ocr` the recipe is the first that there is of `sd35_grpo_ocr`,
`sd35_grpo` and `sd35` in `conf/recipe`, which nobody needs to name. Small models have none; a
family without any may share another's.

`algo=grpo` on a language model is `grpo_token`, `algo=dpo` on an image model `diffusion_dpo`;
`reward=function` on an image model is `image_function`. An algorithm on data has no reward unless
one is chosen.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.config.layers import Layer
from rlfactory.config.memory.model_parts import published
from rlfactory.config.schema.signature import trait
from rlfactory.model.pipelines.families import FAMILIES

MEDIA_FORMS = {
    "algo": {
        ("grpo", "texts"): "grpo_token",
        ("dpo", "images"): "diffusion_dpo",
        ("dpo", "videos"): "diffusion_dpo",
    },
    "reward": {
        ("function", "images"): "image_function",
        ("function", "videos"): "image_function",
        ("image_function", "texts"): "function",
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
