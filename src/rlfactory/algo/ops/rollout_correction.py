"""Tokens that an engine drew: how far its distribution is from the trainer's, and a correction."""

import torch
from torch import Tensor

from rlfactory.rollout import Tokens


def rollout_correction_weights(tokens: Tokens, cap: float) -> tuple[Tensor, Tensor]:
    """Truncated importance weights w = min(p / q, C) of the M real tokens.

    p is a token's probability by the trainer's network before the first update, q that of the
    distribution that the engine drew it from. They multiply the policy's loss of a token, and have
    no gradient. It is TRL's `vllm_importance_sampling_mode=token_truncate` with C its
    `vllm_importance_sampling_clip_max` (trl/trainer/grpo_trainer.py, 1.16), and the TIS of Yao et
    al. 2025, "Your efficient RL framework secretly brings you off-policy RL training".

    Args:
        tokens: Responses with `engine_log_prob`.
        cap: C.

    Returns:
        w, and whether it was cut (1 or 0), each `[M]`.
    """
    ratio = tokens.real(_log_ratio(tokens)).exp()
    return ratio.clamp(max=cap), (ratio > cap).float()


def mismatch_metrics(tokens: Tokens) -> dict[str, float]:
    """`|log p - log q|` over the real tokens, its mean and maximum; nothing without an engine."""
    if tokens.engine_log_prob is None:
        return {}
    off = tokens.real(_log_ratio(tokens)).abs()
    mean, most = torch.stack([off.mean(), off.max()]).tolist()
    return {"engine/log_prob_mismatch_mean": mean, "engine/log_prob_mismatch_max": most}


def _log_ratio(tokens: Tokens) -> Tensor:
    """log p - log q, `[B, G]`."""
    if tokens.engine_log_prob is None:
        raise ValueError("these tokens were drawn by no engine")
    return tokens.log_prob - tokens.engine_log_prob
