"""Algorithms that have another name by what a model generates.

`algo=grpo` on a language model is `grpo_token`, `algo=dpo` on an image model `diffusion_dpo`.
"""

from collections.abc import Mapping
from typing import Any

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
