"""The logit lens (nostalgebraist 2020): a network's prediction if it ended after a layer."""

import math

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge

from rlfactory.tools.inspect.hooked_model import Stream, Texts, streams


@torch.no_grad()
def lens(bridge: TransformerBridge, stream: Stream, ids: Tensor) -> Tensor:
    """Log-probabilities `[P, L + 1, K]` of the tokens `ids` `[P, K]`, from the embeddings first."""
    residuals = [stream.start, *stream.after.unbind(1)]
    ids = ids.to(stream.start.device)
    return torch.stack([log_probs(bridge, r).gather(1, ids) for r in residuals], dim=1)


def log_probs(bridge: TransformerBridge, residual: Tensor) -> Tensor:
    """Log-probabilities `[P, V]` of a residual stream `[P, d]`, by last norm and unembedding."""
    logits: Tensor = bridge.unembed(bridge.ln_final(residual[None]))[0]
    return logits.float().log_softmax(-1)


@torch.no_grad()
def mean_probabilities(bridge: TransformerBridge, texts: Texts) -> Tensor:
    """The mean probability `[V]` of each token over the positions that predict a response token."""
    total, count = torch.zeros(bridge.cfg.d_vocab, dtype=torch.float64), 0
    for _, stream in streams(bridge, texts):
        total += log_probs(bridge, stream.after[:, -1]).exp().double().sum(0).cpu()
        count += len(stream.start)
    return total / count


def most_changed(before: Tensor, after: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Tokens whose probability `[V]` rose the most and fell the most, the largest change first.

    Not by ratio, which would list tokens that neither network ever writes.
    """
    order = (after - before).argsort(descending=True)
    return order[:count], order.flip(0)[:count]


def likelier(base: Tensor, tuned: Tensor) -> Tensor:
    """log2 of the factor `[...]` by which mean probabilities rose, from log-probs `[P, ...]`.

    Probabilities are averaged, not log-probabilities: those are dominated by positions where a
    token is very unlikely, and their mean can fall for a token that is written more often.
    """
    before, after = (x.double().logsumexp(0) for x in (base, tuned))
    return ((after - before) / math.log(2)).float()
