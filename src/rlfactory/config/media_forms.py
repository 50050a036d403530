"""What an algorithm's name means for a model, and the reward of one that needs none.

`algo=grpo` on a language model is `grpo_token`, `algo=dpo` on an image model `diffusion_dpo`; an
algorithm on data has no reward unless one is chosen.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlfactory.config.layers import Layer
from rlfactory.config.schema.signature import read_signature
from rlfactory.config.schema.static_names import TargetError

MEDIA_FORMS = {
    ("grpo", "texts"): "grpo_token",
    ("dpo", "images"): "diffusion_dpo",
    ("dpo", "videos"): "diffusion_dpo",
}
"""The option meant by the name in the literature, and what the model generates."""


def media_form(values: Mapping[str, Any], choices: Mapping[str, str]) -> str | None:
    """The option of `algo` that is meant for the model that is trained.

    Args:
        values: the composed values.
        choices: the option chosen of each group.

    Returns:
        None where the chosen option is the one meant.
    """
    algo, node = choices.get("algo", ""), values.get("model")
    if not isinstance(node, Mapping) or all(name != algo for name, _ in MEDIA_FORMS):
        return None
    try:
        signature = read_signature(str(node.get("_target_")))
    except (KeyError, TargetError):
        return None
    return MEDIA_FORMS.get((algo, str(signature.class_constants.get("media"))))


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
    node = values.get("algo")
    try:
        signature = read_signature(str(node["_target_"] if isinstance(node, Mapping) else ""))
    except (KeyError, TargetError):
        return False
    return signature.class_constants.get("samples_from") == "data"
