"""Statistics over the real tokens of a batch, in float32 whatever comes in.

What lies outside the mask, even NaN, does not matter.
"""

import torch
from torch import Tensor


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of `x` `[B, G]` where `mask` is true, a scalar; 0 where it is true nowhere."""
    return x.float().masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def masked_std(x: Tensor, mask: Tensor, *, unbiased: bool = False) -> Tensor:
    """Deviation of `x` `[B, G]` where `mask` is true, a scalar; 0 for a single token or none."""
    return _variance(x, mask, unbiased).sqrt()


def whiten(
    x: Tensor,
    mask: Tensor,
    *,
    shift_mean: bool = True,
    unbiased: bool = False,
    eps: float = 1e-8,
) -> Tensor:
    """`(x - mean) / sqrt(variance + eps)`, plus the mean unless it is shifted to 0, `[B, G]`.

    OpenAI's is unmasked and of the population, TRL's `unbiased`; `x` `[B, G]`, 0 outside the mask.
    """
    x = x.float()
    # measured from a value of its own, a constant is exactly 0; from its rounded mean it is not
    x_max = x.masked_fill(~mask, -torch.inf).amax()
    centred = x - x_max
    centred = centred - masked_mean(centred, mask)
    whitened = centred * torch.rsqrt(_variance(centred, mask, unbiased) + eps)
    if not shift_mean:
        whitened = whitened + masked_mean(x, mask)
    return whitened.masked_fill(~mask, 0.0)


def _variance(x: Tensor, mask: Tensor, unbiased: bool) -> Tensor:
    squares = (x.float() - masked_mean(x, mask)).square().masked_fill(~mask, 0.0).sum()
    return squares / (mask.sum() - int(unbiased)).clamp(min=1)
