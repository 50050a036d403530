"""How a reward model reads a text, as its configuration records it, and its score of a state.

transformers' own classifiers look for the last token that is no padding. Where the end of text
serves as padding, as in GPT-2, that is the token before it; here a mask says where the text ends.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlfactory.model.lm.attention import hidden_states

KEY = "rlfactory_score"
"""The key of a reward model's config.json that holds its `ScoreFormat`."""


@dataclass(frozen=True)
class ScoreFormat:
    """What `rlfactory reward-model` records.

    Attributes:
        prefix: the text before each prompt: an end of text where the policy has one there.
        with_end: whether the score is read after the end of text, or after the last token of a
            response without an end; False: after the last token of the text.
        mean: the mean score of reference completions, which is subtracted from every score.
    """

    prefix: str = ""
    with_end: bool = False
    mean: float = 0.0

    @classmethod
    def of(cls, config: Any) -> "ScoreFormat":
        """That of a transformers configuration; the default where it has none."""
        found = getattr(config, KEY, None)
        return cls(**found) if isinstance(found, Mapping) else cls()

    def record(self, config: Any) -> None:
        """Write it into a transformers configuration."""
        setattr(config, KEY, asdict(self))


def has_state_scores(network: nn.Module) -> bool:
    """Whether a classifier scores each token by a layer `score`, as transformers' causal ones."""
    return isinstance(getattr(network, "score", None), nn.Linear)


def state_scores(network: Any, ids: Tensor, mask: Tensor | None = None, *rest: Any) -> Tensor:
    """Scores `[B, L, labels]` of the states after each of the tokens `ids` `[B, L]`; positions and
    a cache as for `hidden_states`.
    """
    return network.score(hidden_states(network, ids, mask, *rest))


def end_scores(network: Any, ids: Tensor, mask: Tensor) -> Tensor:
    """Scores `[B, labels]` of texts `[B, L]`, padded on the right, after their last tokens."""
    rows = torch.arange(len(ids), device=ids.device)
    return state_scores(network, ids, mask)[rows, mask.sum(1) - 1]
