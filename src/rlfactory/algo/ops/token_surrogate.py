"""The surrogate of token policies: its ratio, its clipping, which tokens a trust region of
probabilities leaves (DPPO, CPPO), the mean over tokens, and the correction of rollouts that another
engine drew.

M is the number of real tokens of a micro-batch, B the number of responses.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rlfactory.algo.ops.surrogate import clipped_surrogate, moves_away
from rlfactory.rollout import Tokens

Divergence = Literal["tv", "kl"]


def binary_divergence(log_prob: Tensor, old_log_prob: Tensor, kind: Divergence) -> Tensor:
    """D of a token between `q`, the old policy, and `p`, in the shape of both.

        tv  |p - q|                                                (DPPO, arXiv 2602.04879)
        kl  q log(q / p) + (1 - q) log((1 - q) / (1 - p))          (the same)

    1 - q and 1 - p are 1e-8 larger, as verl has them, so that a certain token has a finite D.
    """
    prob, old = log_prob.exp(), old_log_prob.exp()
    if kind == "tv":
        return (prob - old).abs()
    others = (1 - old) * torch.log((1 - old + 1e-8) / (1 - prob + 1e-8))
    return old * (old_log_prob - log_prob) + others


def exceeds_prefix_budget(
    divergence: Tensor, limit: Tensor, tokens: Tokens, *, last_weight: float, budget: float
) -> Tensor:
    """Whether a token is beyond CPPO's limits (arXiv 2606.10968, eq. 8-11), `[M]` bool.

    With D_t the divergence and w_t falling linearly from 1 to `last_weight` over a response,
    w_t D_t may be at most the limit, and its sum up to here at most the limit plus b times the sum
    of w before here. b is the response's 90 % quantile of D, kept between `budget` and twice that
    (eq. 22).

    Args:
        divergence: D, `[M]`.
        limit: `[M]`.
        tokens: The responses.
        last_weight: w of a response's last token.
        budget: The least b.
    """
    mask, padded = tokens.mask, tokens.pad(divergence)
    position = torch.arange(mask.shape[1], device=mask.device)
    last = (mask.sum(1, keepdim=True) - 1).clamp(min=1)
    weight = 1 - (1 - last_weight) * position / last
    used = weight * padded
    rate = padded.masked_fill(~mask, torch.nan).nanquantile(0.9, 1, keepdim=True)
    rate = rate.clamp(budget, 2 * budget)
    spared = rate * (weight.cumsum(1) - weight) - (used.cumsum(1) - used)
    return tokens.real(used - spared.clamp(max=0)) > limit


Surrogate = Literal["clip", "cispo", "sapo", "gmpo", "vespo", "dppo", "cppo", "drpo", "spo"]
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


class TokenLosses(NamedTuple):
    """The losses `[M]`, the log-ratios `[M]` that they are of, and which tokens are `outside` the
    trust region, `[M]` bool; None: those whose ratio is outside the clips.
    """

    losses: Tensor
    log_ratio: Tensor
    outside: Tensor | None = None


@dataclass(frozen=True)
class TokenSurrogate:
    """The loss of a token, with r its ratio, A its advantage and sg a stopped gradient:

        clip   max(-A r, -A clip(r, 1 - c, 1 + h)), where A < 0 at most -A d
        cispo  -sg(clip(r, 1 - c, 1 + h)) A log p                  (MiniMax-M1, arXiv 2506.13585)
        sapo   -A 4 / tau sigmoid(tau (r - 1)), tau by the sign of A       (SAPO, arXiv 2511.20347)
        gmpo   -A r, the log r of tokens clipped before their mean         (GMPO, arXiv 2507.20673)
        vespo  -sg(exp(lambda + k log r - lambda r)) A log p              (VESPO, arXiv 2602.10693)
        dppo   -A r, or 0 where D exceeds the limit, moving away           (DPPO, arXiv 2602.04879)
        cppo   the same with limits along the response                     (CPPO, arXiv 2606.10968)
        drpo   -A r + abs(A) q (r - 1)^2 / (2 c), q the old probability    (DRPO, arXiv 2606.09821)
        spo    -A r + abs(A) (r - 1)^2 / (2 c)                              (SPO, arXiv 2401.16025)

    `gmpo` keeps log r at most h where A > 0, and at least -c elsewhere; k and lambda go by the sign
    of A. D is a `binary_divergence`; its limit is h where A > 0, else c. Attributes that are
    not named here are `PPO`'s options.

    Attributes:
        kind: The row of the table.
        level: What r is the ratio of, see `level_log_ratio`.
        dual_clip: d; None: no bound.
        soft_positive: tau where A > 0, and `soft_negative` elsewhere.
        power: k where A >= 0, and elsewhere; `decay` is lambda.
        ratio_cap: C: `dppo` and `cppo` have -sg(min(r, C)) A log p for -A r; None: as they are.
    """

    kind: Surrogate = "clip"
    level: RatioLevel = "token"
    clip_range: float = 0.2
    clip_high: float | None = None
    dual_clip: float | None = None
    soft_positive: float = 1.0
    soft_negative: float = 1.05
    power: tuple[float, float] = (2.0, 3.0)
    decay: tuple[float, float] = (3.0, 2.0)
    divergence: Divergence = "tv"
    ratio_cap: float | None = None
    last_weight: float = 0.8
    prefix_budget: float = 0.02

    def losses(
        self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor, tokens: Tokens
    ) -> TokenLosses:
        """The losses of tokens.

        Args:
            log_prob: log p, `[M]` with gradient.
            log_ratio: log p - log p_old of each token, `[M]` with gradient.
            advantage: A, `[M]`.
            tokens: The responses.
        """
        low, high = self.clip_range, self._high
        if self.kind == "gmpo":
            least = torch.where(advantage > 0, -torch.inf, -low)
            most = torch.where(advantage > 0, high, torch.inf)
            outside = (log_ratio < least) | (log_ratio > most)
            log_ratio = level_log_ratio(log_ratio.clamp(least, most), tokens, self.level)
            return TokenLosses(-advantage * log_ratio.exp(), log_ratio, outside)
        log_ratio = level_log_ratio(log_ratio, tokens, self.level)
        if self.kind == "clip":
            losses, _ = clipped_surrogate(
                log_ratio, advantage, low, clip_high=self.clip_high, dual_clip=self.dual_clip
            )
            return TokenLosses(losses, log_ratio)
        ratio = log_ratio.exp()
        match self.kind:
            case "cispo":
                weight = ratio.detach().clamp(1 - low, 1 + high)
                return TokenLosses(-weight * advantage * log_prob, log_ratio)
            case "sapo":
                tau = torch.where(advantage > 0, self.soft_positive, self.soft_negative)
                losses = -advantage * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
                return TokenLosses(losses, log_ratio)
            case "vespo":
                weight = self._gamma_weight(log_ratio.detach(), advantage)
                nowhere = torch.zeros_like(advantage, dtype=torch.bool)
                return TokenLosses(-weight * advantage * log_prob, log_ratio, nowhere)
            case "dppo" | "cppo":
                outside = self._leaves(log_prob.detach(), log_ratio.detach(), advantage, tokens)
                if self.ratio_cap is not None:
                    ratio = ratio.detach().clamp(max=self.ratio_cap) * log_prob
                return TokenLosses((-advantage * ratio).masked_fill(outside, 0), log_ratio, outside)
        change = ratio - 1
        penalty = advantage.abs() * change.square() / (2 * low)
        if self.kind == "drpo":  # a penalty of the probability: its slope is |p - q| / c
            old = (log_prob - log_ratio).detach().exp()
            penalty, change = penalty * old, change * old
        outside = change.detach().abs() > low
        return TokenLosses(-advantage * ratio + penalty, log_ratio, outside)

    @property
    def _high(self) -> float:
        return self.clip_range if self.clip_high is None else self.clip_high

    def _gamma_weight(self, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """`r^k e^(lambda (1 - r))`: 1 at r = 1, and 0 far from it on either side."""
        power = torch.where(advantage >= 0, *self.power)
        decay = torch.where(advantage >= 0, *self.decay)
        log_ratio = log_ratio.clamp(-20, 20)  # of whole responses: exp may overflow
        return torch.exp(decay + power * log_ratio - decay * log_ratio.exp())

    def _leaves(
        self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor, tokens: Tokens
    ) -> Tensor:
        """Whether a token is beyond its limit and moves further from the old policy, `[M]`."""
        divergence = binary_divergence(log_prob, log_prob - log_ratio, self.divergence)
        limit = torch.where(advantage > 0, self._high, self.clip_range)
        beyond = divergence > limit
        if self.kind == "cppo":
            weight, budget = self.last_weight, self.prefix_budget
            beyond = exceeds_prefix_budget(
                divergence, limit, tokens, last_weight=weight, budget=budget
            )
        return beyond & moves_away(log_ratio, advantage)


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
    if tokens.engine_log_prob is None:
        raise ValueError("these tokens were drawn by no engine")
    ratio = tokens.real(tokens.log_prob - tokens.engine_log_prob).exp()
    return ratio.clamp(max=cap), (ratio > cap).float()
