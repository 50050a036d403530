"""Ids and tokens: ids that no token has, and tokens for which a model has no row."""

from collections.abc import Sequence
from typing import Any

from rlfactory.utils.errors import ModelError

IMPOSSIBLE = -1e9
"""The logit of an id that no token has. It is finite, so that its share of entropy and divergence
is exactly 0, and not NaN."""


def unused_ids(tokenizer: Any, count: int) -> tuple[int, ...]:
    """Ids below `count` that no token has: embeddings are often padded to a round number."""
    return tuple(sorted({*range(count)} - {*tokenizer.get_vocab().values()}))


def require_rows(tokenizer: Any, texts: Sequence[Sequence[int]], rows: int) -> None:
    """Check that a model of `rows` rows has one for each token of `texts`.

    Raises:
        ModelError: it has not; the message names the token.
    """
    if (most := max((max(ids, default=0) for ids in texts), default=0)) < rows:
        return
    token = tokenizer.convert_ids_to_tokens(most)
    raise ModelError(
        f"a text, or what the chat template adds to it, has {token!r}, token {most} of the"
        f" tokenizer, and the model's embedding has {rows} rows; add rows for it in transformers"
        " by resize_token_embeddings, or leave it out"
    )
