"""The recipe of a model and an algorithm: a file of `conf/recipe` that nobody needs to name.

For `model=sd35 algo=grpo reward=ocr` it is the first that there is of `sd35_grpo_ocr`, `sd35_grpo`
and `sd35`. Small models have none; a family without any may share another's.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rlfactory.config.memory.model_parts import published
from rlfactory.model.pipelines.families import FAMILIES

NONE = "none"


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
    for family in (choices.get("model"), *published_as, *shared):
        yield from (f"{family}_{algo}_{reward}", f"{family}_{algo}", f"{family}")
