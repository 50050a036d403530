"""How far a policy on tokens is from its reference: exactly, or estimated from sampled tokens."""

from typing import Literal

import torch
from torch import Tensor

Estimator = Literal["k1", "k2", "k3", "abs"]


def estimate(log_ratio: Tensor, estimator: Estimator) -> Tensor:
    """Per token, from `log p - log p_ref` of tokens drawn from p, `[B, G]` float32.

    k1 and k3 have the KL divergence as their expectation, k2 its gradient when it is
    differentiated; abs has neither (Schulman 2020, "Approximating KL Divergence"; TRL).
    """
    d = log_ratio.float()
    match estimator:
        case "k1":
            return d
        case "k2":
            return 0.5 * d.square()
        case "k3":
            return torch.expm1(-d) + d
        case "abs":
            return d.abs()


def exact(log_p: Tensor, log_q: Tensor) -> Tensor:
    """`KL(p || q)` in nats, `[..., V]` to `[...]`, differentiable in both.

    The logarithms, as of `log_softmax` over V, must be finite.
    """
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def entropy(log_p: Tensor) -> Tensor:
    """Entropy of p in nats, `[..., V]` to `[...]`, differentiable; `log_p` must be finite."""
    return -(log_p.exp() * log_p).sum(-1)
