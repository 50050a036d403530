"""The critic's loss: squared distance from the returns, with PPO's clipping of the step."""

import torch
from torch import Tensor


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float | None) -> Tensor:
    """`0.5 max((V - R)^2, (V_clipped - R)^2)` per token, `[B, G]`; `0.5 (V - R)^2` without a clip.

    `V_clipped` is V, but at most `clip` from the value of the rollout (OpenAI, TRL: 0.2).
    """
    loss = (values - returns).square()
    if clip is not None:
        clipped = old_values + (values - old_values).clamp(-clip, clip)
        loss = torch.maximum(loss, (clipped - returns).square())
    return 0.5 * loss
