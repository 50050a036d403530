"""The logit lens (nostalgebraist 2020): what a network would say if it ended after a layer."""

import math

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge

from rlfactory.inspection.bridge import Stream, streams
from rlfactory.inspection.texts import Texts


@torch.no_grad()
def lens(bridge: TransformerBridge, stream: Stream, ids: Tensor) -> Tensor:
    """Log-probabilities `[P, L + 1, K]` of the tokens `ids` `[P, K]`, the embeddings first."""
    residuals = [stream.start, *stream.after.unbind(1)]
    ids = ids.to(stream.start.device)
    return torch.stack([log_probs(bridge, r).gather(1, ids) for r in residuals], dim=1)


def log_probs(bridge: TransformerBridge, residual: Tensor) -> Tensor:
    """Log-probabilities `[P, V]` that the last layer norm and the vocabulary read in `[P, d]`."""
    logits: Tensor = bridge.unembed(bridge.ln_final(residual[None]))[0]
    return logits.float().log_softmax(-1)


@torch.no_grad()
def mean_probabilities(bridge: TransformerBridge, texts: Texts) -> Tensor:
    """The mean probability `[V]` of each token over the foretold positions."""
    total, count = torch.zeros(bridge.cfg.d_vocab, dtype=torch.float64), 0
    for _, stream in streams(bridge, texts):
        total += log_probs(bridge, stream.after[:, -1]).exp().double().sum(0).cpu()
        count += len(stream.start)
    return total / count


def most_changed(before: Tensor, after: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Tokens whose probability `[V]` rose the most and fell the most, the largest change first.

    Probabilities, since ratios would list tokens that neither network ever writes.
    """
    order = (after - before).argsort(descending=True)
    return order[:count], order.flip(0)[:count]


def likelier(base: Tensor, tuned: Tensor) -> Tensor:
    """By which factor, in powers of 2, mean probabilities `[...]` rose; log-probs `[P, ...]` in.

    The mean is one of probabilities: that of log-probabilities is ruled by the positions where a
    token is out of the question, and can fall for a token that is written more often.
    """
    before, after = (x.double().logsumexp(0) for x in (base, tuned))
    return ((after - before) / math.log(2)).float()
