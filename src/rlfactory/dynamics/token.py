"""Drawing the next token, and how likely it was."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlfactory.types import NonNegativeInt, Positive, PositiveFraction, PositiveInt

LogProbOf = Literal["sampled", "full", "untempered"]


@dataclass(frozen=True)
class TokenStep:
    """The tokens taken `[...]`, their `log_prob` `[...]`, and `log_probs` `[..., V]` of them all.

    `log_probs` is tempered but not truncated, so that entropies and divergences are finite.
    """

    next: Tensor
    log_prob: Tensor
    log_probs: Tensor


class Token:
    """Softmax at a temperature, perhaps truncated to the `top_k` or to the nucleus `top_p`.

    `log_prob` is that of the distribution that was sampled from. Its rivals: `full` ignores the
    truncation (the ratio stays consistent, the expectation is another one), `untempered` the
    temperature too, as a walkthrough did. A response ends with the end of text unless that is
    ignored, or with one of `stop`, from token number `stop_after` on; at the latest after `length`.
    """

    log_prob = True
    process = "tokens"

    def __init__(
        self,
        *,
        length: PositiveInt = 48,
        temperature: Positive = 1.0,
        top_k: NonNegativeInt = 0,
        top_p: PositiveFraction = 1.0,
        stop_at_end: bool = True,
        stop: list[str] | None = None,
        stop_after: NonNegativeInt = 0,
        log_prob_of: LogProbOf = "sampled",
    ) -> None:
        self.length = length
        self.temperature = temperature
        self.top_k, self.top_p = top_k, top_p
        self.stop_at_end, self.stop, self.stop_after = stop_at_end, stop or [], stop_after
        self.log_prob_of: LogProbOf = log_prob_of

    @property
    def truncates(self) -> bool:
        """Whether some tokens are never drawn."""
        return self.top_k > 0 or self.top_p < 1

    def step(
        self, logits: Tensor, *, noise: Tensor | None = None, next: Tensor | None = None
    ) -> TokenStep:
        """Draw by uniform `noise` `[...]`, or look up the tokens `next` `[...]`, in float32."""
        logits = logits.float()
        tempered = logits if self.temperature == 1 else logits / self.temperature
        full = tempered.log_softmax(-1)
        sampled = self._truncated(full)
        if next is None:
            if noise is None:
                raise ValueError("a token needs `noise` to draw with, or the `next` to look up")
            next = inverse_cdf(sampled, noise)
        counted = {"sampled": sampled, "full": full}.get(self.log_prob_of)
        if counted is None:
            counted = logits.log_softmax(-1)
        return TokenStep(next, counted.gather(-1, next[..., None])[..., 0], full)

    def _truncated(self, log_probs: Tensor) -> Tensor:
        """The distribution without its tail, normalised again; what is cut off is `-inf`."""
        kept = log_probs
        if 0 < self.top_k < log_probs.shape[-1]:
            least = kept.topk(self.top_k, dim=-1).values[..., -1:]
            kept = kept.masked_fill(kept < least, -torch.inf)
        if self.top_p < 1:
            ordered, order = kept.sort(-1, descending=True)
            before = ordered.exp().cumsum(-1) - ordered.exp()
            outside = before >= self.top_p * ordered.exp().sum(-1, keepdim=True)
            kept = kept.masked_fill(outside.scatter(-1, order, outside), -torch.inf)
        return kept if kept is log_probs else kept.log_softmax(-1)


def inverse_cdf(log_probs: Tensor, uniform: Tensor) -> Tensor:
    """The tokens where the distribution functions of `[..., V]` pass `uniform` `[...]` in [0, 1).

    One number a token, so that a draw can be keyed by its sample without as many as V of them.
    """
    cdf = log_probs.exp().cumsum(-1)
    # rounding must not carry the largest numbers past the last token that has any probability
    target = uniform.clamp(max=1 - 1e-6)[..., None] * cdf[..., -1:]
    return torch.searchsorted(cdf, target, right=True)[..., 0]
