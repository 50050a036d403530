"""PPO on tokens (arXiv 1707.06347), with a value head (arXiv 1909.08593)."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from rlfactory.advantage.formulas import group_advantages
from rlfactory.algo.base import Algorithm, Loss
from rlfactory.algo.divergence import entropy
from rlfactory.algo.gae import gae, terminal_rewards
from rlfactory.algo.masked import whiten
from rlfactory.algo.rloo import rloo_advantages
from rlfactory.algo.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.algo.value_loss import value_loss
from rlfactory.batch import TokenBatch, TokenOutputs
from rlfactory.dynamics.token import Token
from rlfactory.model.text import TextModel
from rlfactory.nest import present
from rlfactory.rollout import Rollout
from rlfactory.types import Fraction, NonNegative, Positive

Normalize = Literal["batch", "minibatch", "none"]


class PPO(Algorithm[TextModel, TokenBatch, TokenBatch]):
    """With `r` a token's ratio of likelihoods, A its advantage by GAE, V and R value and return,

        loss = mean max(-A r, -A clip(r, 1 - c, 1 + c)) + c_v l_V - c_H H,

    means over real tokens. The score stands on the last of them. `gamma=1 lam=0` is the
    walkthrough's one-step advantage.
    """

    needs = "tokens"

    def __init__(
        self,
        dynamics: Token,
        *,
        baseline: Literal["value", "group", "rloo"] = "value",
        gamma: Fraction = 1.0,
        lam: Fraction = 0.95,
        clip_range: Positive = 0.2,
        value_weight: NonNegative = 0.1,
        value_clip: Positive | None = 0.2,
        entropy_weight: NonNegative = 0.0,
        normalize: Normalize = "batch",
        reward_scale: Literal["none", "batch", "whiten"] = "none",
        reward_shift: bool = True,
        whiten_token_rewards: bool = False,
        missing_end: Literal["none", "penalty", "replace"] = "none",
        missing_end_value: float = 1.0,
    ) -> None:
        self.dynamics = dynamics
        self.baseline = baseline
        self.gamma, self.lam = gamma, lam
        self.clip_range = clip_range
        self.ratio_tolerance = clip_range / 10
        self.value_weight, self.value_clip = value_weight, value_clip
        self.entropy_weight = entropy_weight
        self.normalize: Normalize = normalize
        self.reward_scale, self.reward_shift = reward_scale, reward_shift
        self.whiten_token_rewards = whiten_token_rewards
        self.missing_end, self.missing_end_value = missing_end, missing_end_value

    def appraise(self, rollout: Rollout, main: str) -> Rollout:
        """Advantages and returns `[B, G]` from the scores, less what each token pays for itself."""
        tokens = present(rollout.tokens, "tokens")
        mask = tokens.mask
        scores = self._scaled(self._ended(rollout.rewards[main].to(mask.device), tokens.ended))
        if self.baseline != "value":
            return self._by_group(rollout, scores)
        earned = terminal_rewards(scores, mask)
        if rollout.penalty is not None:
            earned = earned - rollout.penalty
        if self.whiten_token_rewards:
            earned = whiten(earned, mask, shift_mean=False)
        advantage = gae(earned, tokens.value, mask, gamma=self.gamma, lam=self.lam)
        returns = advantage + tokens.value
        if self.normalize == "batch":
            advantage = whiten(advantage, mask)
        return replace(rollout, advantage=advantage, returns=returns)

    def _by_group(self, rollout: Rollout, scores: Tensor) -> Rollout:
        """Each token gets its response's advantage; what tokens pay counts as part of the score."""
        tokens = present(rollout.tokens, "tokens")
        if rollout.penalty is not None:
            scores = scores - rollout.penalty.sum(1)
        compare = rloo_advantages if self.baseline == "rloo" else group_advantages
        each = compare(scores.cpu().double(), rollout.groups).float().to(tokens.mask.device)
        advantage = each[:, None] * tokens.mask
        return replace(rollout, advantage=advantage, returns=advantage + tokens.value)

    def _ended(self, scores: Tensor, ended: Tensor) -> Tensor:
        """Scores with the price of a response that did not come to an end."""
        if self.missing_end == "none":
            return scores
        punished = scores - self.missing_end_value
        if self.missing_end == "replace":
            punished = torch.full_like(scores, -self.missing_end_value)
        return torch.where(ended, scores, punished)

    def _scaled(self, scores: Tensor) -> Tensor:
        """`batch`: (r - mean) / (std + 1e-5), unbiased; `whiten`: by the population's variance."""
        if self.reward_scale == "none":
            return scores
        if self.reward_scale == "batch":
            return (scores - scores.mean()) / (scores.std() + 1e-5)
        return whiten(
            scores, torch.ones_like(scores, dtype=torch.bool), shift_mean=self.reward_shift
        )

    def compared(self, samples: Rollout) -> Rollout:
        """The advantages whitened, where that is done in each minibatch."""
        if self.normalize != "minibatch":
            return samples
        tokens = present(samples.tokens, "tokens")
        advantage = whiten(present(samples.advantage, "advantages"), tokens.mask)
        return replace(samples, advantage=advantage)

    def items(self, rollout: Rollout, model: TextModel, *, seed: int, iteration: int) -> TokenBatch:
        """One item a response."""
        del seed, iteration
        tokens = present(rollout.tokens, "tokens")
        advantage = present(rollout.advantage, "advantages")
        most = model.rows_at_once(tokens.mask.shape[1], max(1, len(rollout)))
        return TokenBatch(tokens, advantage, present(rollout.returns, "returns"), most)

    def loss(self, model: TextModel, batch: TokenBatch) -> Loss:
        """Weigh each token's new likelihood against the old, and the values against returns."""
        tokens, mask = batch.tokens, batch.tokens.mask
        logits, values = model.forward(tokens)
        step = self.dynamics.step(logits, next=tokens.response[mask])
        losses, ratio = clipped_surrogate(
            step.log_prob - tokens.log_prob[mask], batch.advantage[mask], self.clip_range
        )
        critic = value_loss(values, tokens.value[mask], batch.returns[mask], self.value_clip)
        # without a bonus the entropy is only measured
        spread = entropy(step.log_probs if self.entropy_weight else step.log_probs.detach())
        loss = losses + self.value_weight * critic - self.entropy_weight * spread
        metrics = {
            "loss/policy": losses.detach(),
            "loss/value": critic.detach(),
            "policy/entropy": spread.detach(),
            "value/mean": values.detach(),
            **ratio_metrics(ratio, self.clip_range),
        }
        return Loss(loss.mean(), TokenOutputs(step.log_prob, step.log_probs, values), metrics)
