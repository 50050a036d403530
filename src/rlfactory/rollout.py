"""The data that flows: what was sampled, and what it was worth."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from rlfactory.nest import take


@dataclass(frozen=True)
class Condition:
    """What a network is told about its prompts: named tensors, one row a sample."""

    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class Transitions:
    """A rollout's stochastic steps: times, log-probability `[B, T]`, states `[B, T, C, H, W]`.

    `mean` is where the sampling policy's step was centred, kept for the algorithms that ask for it.
    """

    t: Tensor
    t_next: Tensor
    x: Tensor
    next: Tensor
    log_prob: Tensor
    mean: Tensor | None = None


@dataclass(frozen=True)
class Tokens:
    """Prompts `[B, P]`, padded on the left, and responses `[B, G]`, padded on the right.

    `mask` is true on the real tokens of a response, an end of text included; `log_prob` and `value`
    `[B, G]` are the behaviour policy's: the value at t is that of the state before token t.
    `reference_log_prob` is that of the policy to stay near, where it is kept, and `divergence` how
    far from it the behaviour policy was, where the reward pays for it.
    """

    prompt: Tensor
    prompt_mask: Tensor
    response: Tensor
    mask: Tensor
    ended: Tensor
    log_prob: Tensor
    value: Tensor
    reference_log_prob: Tensor | None = None
    divergence: Tensor | None = None


class Whole:
    """The `samples` of all processes, light, of which a rollout has a part; `spare` is one of its
    own that is worth nothing. No dataclass: rows of a rollout are rows of the same whole.
    """

    def __init__(self, samples: "Rollout", spare: "Rollout | None" = None) -> None:
        self.samples, self.spare = samples, spare


@dataclass(frozen=True)
class Rollout:
    """One iteration's samples. `index` counts them globally and keys their randomness.

    Image models leave `latents` and `images`, and `transitions` where steps are trained; text
    models `tokens` and `texts`. `advantage` is `[B]`, or `[B, G]` as `returns` and `penalty` are.
    `peers` `[B]` numbers those whom an advantage compares, where they are fewer than a group.
    `old` `[B, T]` is the behaviour policy's surrogate likelihood, NaN where learning is on-policy.
    `weight` is the factor on the mean loss over these samples: below 1 where others, whose loss is
    zero, were left out of a mean that is meant to be over all. `whole` is what these samples are a
    part of, where other processes have others.
    """

    prompts: list[str]
    metadata: list[Mapping[str, Any]]
    groups: Tensor
    index: Tensor
    condition: Condition | None = None
    latents: Tensor | None = None
    images: Tensor | None = None
    transitions: Transitions | None = None
    tokens: Tokens | None = None
    texts: list[str] | None = None
    rewards: Mapping[str, Tensor] = field(default_factory=dict)
    penalty: Tensor | None = None
    advantage: Tensor | None = None
    returns: Tensor | None = None
    peers: Tensor | None = None
    old: Tensor | None = None
    weight: float = 1.0
    whole: Whole | None = None

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: Tensor) -> "Rollout":
        return take(self, index)

    @property
    def mean_length(self) -> float:
        """Tokens of a response, on average; 1 for a picture."""
        return 1.0 if self.tokens is None else float(self.tokens.mask.sum()) / len(self)
