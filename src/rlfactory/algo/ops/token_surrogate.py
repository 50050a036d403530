"""The surrogate of token policies: its ratio, its clipping, the mean over tokens, and the
correction of rollouts that another engine drew.

M is the number of real tokens of a micro-batch, B the number of responses.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlfactory.algo.ops.surrogate import clipped_surrogate
from rlfactory.rollout import Tokens

Surrogate = Literal["clip", "cispo", "sapo"]
RatioLevel = Literal["token", "sequence", "sequence_token", "product"]
Aggregation = Literal["token", "sequence", "constant", "sum"]


def level_log_ratio(log_ratio: Tensor, tokens: Tokens, level: RatioLevel) -> Tensor:
    """The log-ratio that each token is weighted by, from those of single tokens.

        token           its own                                                    (PPO, GRPO)
        sequence        the mean over its response                     (GSPO, arXiv 2507.18071)
        sequence_token  the value of that mean, with the gradient of its own       (GSPO-token)
        product         the sum over its response: the ratio of whole responses    (RLOO)

    Args:
        log_ratio: log p - log p_old of each token, `[M]` with gradient.
        tokens: The responses.
        level: The row of the table.

    Returns:
        `[M]`.
    """
    if level == "token":
        return log_ratio
    whole = tokens.pad(log_ratio).sum(1, keepdim=True)
    if level != "product":
        whole = whole / tokens.mask.sum(1, keepdim=True).clamp(min=1)
    of_response = tokens.real(whole.expand(tokens.mask.shape))
    if level == "sequence_token":
        return log_ratio - log_ratio.detach() + of_response.detach()
    return of_response


@dataclass(frozen=True)
class TokenSurrogate:
    """The loss of a token, with r its ratio, A its advantage and sg a stopped gradient:

        clip   max(-A r, -A clip(r, 1 - c, 1 + h)), where A < 0 at most -A d
        cispo  -sg(clip(r, 1 - c, 1 + h)) A log p                  (MiniMax-M1, arXiv 2506.13585)
        sapo   -A 4 / tau sigmoid(tau (r - 1)), tau by the sign of A       (SAPO, arXiv 2511.20347)

    Attributes:
        kind: The row of the table.
        level: What r is the ratio of, see `level_log_ratio`.
        clip_range: c.
        clip_high: h; None: c.
        dual_clip: d; None: no bound.
        soft_positive: tau where A > 0.
        soft_negative: tau elsewhere.
    """

    kind: Surrogate = "clip"
    level: RatioLevel = "token"
    clip_range: float = 0.2
    clip_high: float | None = None
    dual_clip: float | None = None
    soft_positive: float = 1.0
    soft_negative: float = 1.05

    def losses(
        self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The losses and ratios of tokens.

        Args:
            log_prob: log p, `[M]` with gradient.
            log_ratio: log r by `level_log_ratio`, `[M]` with gradient.
            advantage: A, `[M]`.

        Returns:
            The losses `[M]` and the ratios r `[M]`.
        """
        if self.kind == "clip":
            return clipped_surrogate(
                log_ratio,
                advantage,
                self.clip_range,
                clip_high=self.clip_high,
                dual_clip=self.dual_clip,
            )
        ratio = log_ratio.exp()
        if self.kind == "cispo":
            high = self.clip_range if self.clip_high is None else self.clip_high
            weight = ratio.detach().clamp(1 - self.clip_range, 1 + high)
            return -weight * advantage * log_prob, ratio
        tau = torch.where(advantage > 0, self.soft_positive, self.soft_negative)
        return -advantage * torch.sigmoid(tau * (ratio - 1)) * 4 / tau, ratio


def token_weights(
    aggregation: Aggregation, lengths: Tensor, counted: Tensor, constant: int
) -> Tensor:
    """Weights w of responses, so that the mean of w l over all tokens of an update is, of losses l,

        token     the mean over all tokens that count                                   (DAPO)
        sequence  the mean over responses of the mean over their tokens                 (GRPO)
        constant  the sum over tokens, divided by B times a constant                 (Dr. GRPO)
        sum       the mean over responses of the sum over their tokens                 (LUSPO)

    A response that does not count has weight 0. It is among the B responses nevertheless, as in
    TRL, so that it lowers the mean of the last three.

    Args:
        aggregation: The row of the table.
        lengths: Numbers of tokens, `[B]`.
        counted: Whether a response counts, `[B]`.
        constant: The constant, usually the most tokens that a response can have.

    Returns:
        `[B]` float32.
    """
    lengths, weights = lengths.float(), counted.float()
    total, number = lengths.sum(), len(lengths)
    match aggregation:
        case "token":
            return weights * total / (lengths * weights).sum().clamp(min=1)
        case "sequence":
            return weights * total / (number * lengths.clamp(min=1))
        case "constant":
            return weights * total / (number * constant)
        case "sum":
            return weights * total / number


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
