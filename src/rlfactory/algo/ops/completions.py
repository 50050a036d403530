"""Completions and images that the data give, and whole completions as training items."""

from dataclasses import replace
from typing import Any, TypeVar

from rlfactory.batch import TokenBatch
from rlfactory.model.text_base import TextModel
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.chat import reply_text
from rlfactory.prompts.ops.row_forms import UNPAIRED, is_unpaired
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require

BatchT = TypeVar("BatchT", bound=TokenBatch)


def given_completion(prompt: Prompt, column: str, key: str) -> str:
    """The completion of a row of the data, a text or a list of one assistant's message.

    Args:
        prompt: The row.
        column: The column that holds it.
        key: The key of `algo` that names the column, for the message.

    Raises:
        PromptError: The row has no such column, or no text in it.
    """
    if is_unpaired(prompt.metadata):
        raise PromptError(f"the prompt {prompt.text[:60]!r} {UNPAIRED}")
    try:
        text = reply_text(prompt.metadata.get(column))
    except ValueError as error:
        raise PromptError(f"the prompt {prompt.text[:60]!r}: its {column!r}: {error}") from error
    if isinstance(text, str) and text.strip():
        return text
    actual = f"it is {text!r}" if column in prompt.metadata else "there is none"
    raise PromptError(
        f"the prompt {prompt.text[:60]!r}: its {column!r} must be a text, and {actual};"
        f" its columns are {', '.join(prompt.metadata) or 'none'} (algo.{key})"
    )


def given_image(prompt: Prompt, column: str, key: str) -> Any:
    """The image of a row of the data, not read yet; see `prompts.ops.pictured`.

    Raises:
        PromptError: The row has no such column, or nothing in it.
    """
    if (image := prompt.metadata.get(column)) is not None:
        return image
    raise PromptError(
        f"the prompt {prompt.text[:60]!r}: it has no image under {column!r};"
        f" its columns are {', '.join(prompt.metadata) or 'none'} (algo.{key});"
        f" prompts.skip_empty=[{column}] leaves such rows out"
    )


def with_unit_advantages(rollout: Rollout) -> Rollout:
    """The rollout with an advantage of 1 for each token."""
    tokens = require(rollout.tokens, "tokens")
    return replace(rollout, advantage=tokens.mask.float(), returns=tokens.value)


def completion_items(rollout: Rollout, model: TextModel, kind: type[BatchT]) -> BatchT:
    """An item for each completion with its advantages, of as many rows as `model` takes at once."""
    tokens = require(rollout.tokens, "tokens")
    advantage = require(rollout.advantage, "advantages")
    returns = require(rollout.returns, "returns")
    # the lengths are read once for all micro-batches
    max_rows = model.rows_at_once(tokens.mask.shape[1], max(1, len(rollout)))
    return kind(tokens.measured(), advantage, returns, max_rows=max_rows)
