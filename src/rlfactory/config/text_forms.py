"""Algorithms that language models have under another name: `algo=grpo` there is `grpo_token`."""

from collections.abc import Mapping
from typing import Any

from rlfactory.config.schema.signature import read_signature
from rlfactory.config.schema.static_names import TargetError

TEXT_FORMS = {"grpo": "grpo_token"}
"""The option on tokens for one on images of the same name in the literature."""


def text_form(values: Mapping[str, Any], choices: Mapping[str, str]) -> str | None:
    """The option of `algo` that is meant where a language model is trained.

    Args:
        values: the composed values.
        choices: the option chosen of each group.

    Returns:
        None where the chosen option is the one meant.
    """
    form = TEXT_FORMS.get(choices.get("algo", ""))
    node = values.get("model")
    if form is None or not isinstance(node, Mapping):
        return None
    try:
        signature = read_signature(str(node.get("_target_")))
    except (KeyError, TargetError):
        return None
    return form if signature.class_constants.get("media") == "texts" else None
