"""Token sampling for language models: temperature, top-k, top-p, and log-probabilities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from rlfactory.utils.text import typed_text
from rlfactory.utils.types import Faults, NonNegativeInt, Positive, PositiveFraction, PositiveInt

LogProbOf = Literal["full", "untempered"]
TILE = 512
"""Numbers that one product of matrices adds up."""


@dataclass(frozen=True)
class TokenStep:
    """Sampled or replayed tokens.

    Attributes:
        next: Token ids, `[...]`.
        log_prob: Their log-probabilities, by `log_prob_of`, `[...]`.
        log_probs: Log-probabilities of the vocabulary, `[..., V]`; at the temperature but not
            truncated, so that entropy and KL divergence are finite.
    """

    next: Tensor
    log_prob: Tensor
    log_probs: Tensor


class Token:
    """Softmax at a temperature, optionally truncated by top-k and top-p.

    It has the class attributes of `Dynamics`. The model's rollout calls `step` for each new token,
    and the loss calls it for all tokens of a micro-batch at once.

    Args:
        length: The most tokens of a response.
        temperature: Divides the logits, of the rollout and of all likelihoods.
        top_k: Number of most likely tokens to sample from; 0: all.
        top_p: Smallest nucleus with at least this probability to sample from; 1: all.
        stop_at_end: Whether the end-of-text token ends a response.
        stop: Texts that end a response with the token that completes one, in which `\\n`, `\\r`,
            `\\t` and `\\\\` stand for a line break, a return, a tab and a backslash.
        stop_match: `text`: wherever a stop text's tokens begin and end. `token`: only as a token
            of its own (OpenAI), so it must be one.
        stop_after: The number of tokens from which on `stop` applies.
        log_prob_of: Which distribution likelihoods are of. `full`: at the temperature and never
            truncated, so that ratios and divergences are finite: what top-k and top-p keep changes
            with the weights, and of a token outside the ratio would be 0. `untempered`: without the
            temperature too.

    Attributes:
        has_log_prob: Whether steps have a log-probability.
        process: The kind of model that it samples from.
    """

    has_log_prob = True
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
        stop_match: Literal["text", "token"] = "text",
        stop_after: NonNegativeInt = 0,
        log_prob_of: LogProbOf = "full",
    ) -> None:
        self.length = length
        self.temperature = temperature
        self.top_k, self.top_p = top_k, top_p
        self.stop_at_end, self.stop_after, self.stop_match = stop_at_end, stop_after, stop_match
        self.stop = [typed_text(text) for text in stop or []]
        self.log_prob_of: LogProbOf = log_prob_of

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """A stop text is no empty one, which every response has."""
        import json

        if "" in (stop := options["stop"] or []):
            rest = json.dumps([text for text in stop if text], ensure_ascii=False)
            yield "stop", "holds an empty text", f"dynamics.stop={rest}"

    def step(
        self, logits: Tensor, *, noise: Tensor | None = None, next: Tensor | None = None
    ) -> TokenStep:
        """Draw tokens `[...]` from logits `[..., V]` by uniform numbers on [0, 1), `noise` `[...]`,
        or look up the log-probabilities of known ones, `next` `[...]`; in float32. ValueError
        without either.
        """
        full = self.log_probs(logits)
        if next is None:
            if noise is None:
                raise ValueError("a token needs `noise` to draw with, or the `next` to look up")
            next = inverse_cdf(self._truncated(full), noise)
        log_probs = full
        if self.log_prob_of == "untempered":
            log_probs = logits.float().log_softmax(-1)
        return TokenStep(next, log_probs.gather(-1, next[..., None])[..., 0], full)

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities `[..., V]` at the temperature, before truncation, in float32."""
        tempered = logits.float() if self.temperature == 1 else logits.float() / self.temperature
        return tempered.log_softmax(-1)

    def _truncated(self, log_probs: Tensor) -> Tensor:
        """Apply top-k and top-p and normalise again; excluded tokens get `-inf`."""
        kept = log_probs
        if 0 < self.top_k < log_probs.shape[-1]:
            kth_largest = kept.topk(self.top_k, dim=-1).values[..., -1:]
            kept = kept.masked_fill(kept < kth_largest, -torch.inf)
        if self.top_p < 1:
            ordered, order = kept.sort(-1, descending=True)
            before = cumsum(ordered.exp()) - ordered.exp()
            outside = before >= self.top_p * ordered.exp().sum(-1, keepdim=True)
            kept = kept.masked_fill(outside.scatter(-1, order, outside), -torch.inf)
        return kept if kept is log_probs else kept.log_softmax(-1)


def inverse_cdf(log_probs: Tensor, uniform: Tensor) -> Tensor:
    """Inverse-CDF sampling: the first token whose cumulative probability exceeds the draw, `[...]`,
    of log-probabilities `[..., V]` and draws on [0, 1), `uniform` `[...]`.

    It needs one random number a token instead of V, so that draws can be keyed by the sample.
    """
    cdf = cumsum(log_probs.exp())
    # keeps rounding from pushing the largest draws past the last token with any probability
    target = uniform.clamp(max=1 - 1e-6)[..., None] * cdf[..., -1:]
    drawn = torch.searchsorted(cdf, target, right=True)[..., 0]
    # of NaN none exceeds it: an index beyond the last would end CUDA; NaN stays in its likelihood
    return drawn.clamp(max=cdf.shape[-1] - 1)


def cumsum(values: Tensor) -> Tensor:
    """`values.cumsum(-1)` of floating-point values `[..., N]`.

    torch has no deterministic one on CUDA: in deterministic mode it raises. There the sums are
    products with a triangular matrix (`tiled_cumsum`), which cuBLAS computes in a fixed order.
    """
    if values.is_cuda and torch.are_deterministic_algorithms_enabled():
        return tiled_cumsum(values)
    return values.cumsum(-1)


def tiled_cumsum(values: Tensor, tile: int = TILE) -> Tensor:
    """The cumulative sums of `[..., N]`: those of each tile, and the sum of the tiles before it.

    In float64, which no setting lowers to TF32.
    """
    length = values.shape[-1]
    if length <= tile:
        return (values.double() @ _triangle(length, values)).to(values.dtype)
    padded = functional.pad(values.double(), (0, -length % tile))
    tiles = padded.view(*padded.shape[:-1], -1, tile)
    within = tiles @ _triangle(tile, values)
    totals = within[..., -1]
    before = tiled_cumsum(totals, tile) - totals
    return (within + before[..., None]).flatten(-2)[..., :length].to(values.dtype)


def _triangle(size: int, like: Tensor) -> Tensor:
    """Ones on and above the diagonal, `[size, size]`."""
    return torch.ones(size, size, dtype=torch.float64, device=like.device).triu()
