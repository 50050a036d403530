"""PPO on tokens (arXiv 1707.06347) with a value head (arXiv 1909.08593); GRPO and RLOO on tokens.

B responses have at most G tokens each; M is the number of real tokens in a micro-batch.
"""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from rlfactory.algo.advantage.formulas import group_advantages, rloo_advantages
from rlfactory.algo.advantage.gae import gae, terminal_rewards, uniform_rewards, whiten
from rlfactory.algo.base import Algorithm, Loss, OldLogProbs
from rlfactory.algo.ops.old_token_log_probs import token_log_ratio
from rlfactory.algo.ops.surrogate import clipped_surrogate, ratio_metrics
from rlfactory.algo.ops.token_kl import entropy
from rlfactory.algo.ops.token_outputs import end_states_added, token_outputs
from rlfactory.batch import TokenBatch
from rlfactory.dynamics.token import Token, TokenStep
from rlfactory.model.text_base import TextModel
from rlfactory.rollout import Rollout, Tokens
from rlfactory.utils.pytree import require, to_device
from rlfactory.utils.types import Fraction, NonNegative, Positive

Normalize = Literal["batch", "minibatch", "none"]


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float | None) -> Tensor:
    """The critic's clipped loss (OpenAI, TRL), `0.5 max((V - R)^2, (V_clipped - R)^2)`.

    `V_clipped = V_old + clip(V - V_old, -c, c)`; without a clip the loss is `0.5 (V - R)^2`.

    Args:
        values: V now, any shape.
        old_values: V at the rollout.
        returns: R, the targets.
        clip: c, the largest change of V that lowers the loss (usually 0.2); None: not clipped.

    Returns:
        The loss of each value, in the shape of `values`.
    """
    loss = (values - returns).square()
    if clip is not None:
        clipped = old_values + (values - old_values).clamp(-clip, clip)
        loss = torch.maximum(loss, (clipped - returns).square())
    return 0.5 * loss


class PPO(Algorithm[TextModel, TokenBatch, TokenBatch]):
    """With `r` a token's likelihood ratio, A its advantage, V its value and H the entropy,

        loss = mean max(-A r, -A clip(r, 1 - c, 1 + c)) + c_v value_loss(V) - c_H H,

    the mean over real tokens. A response's score is the reward of its last token, unless
    `score_placement` says otherwise; the value loss of a state after the end is added to that of
    the last token.

    Args:
        dynamics: The token sampler, for log-likelihoods as sampled.
        baseline: `value`: GAE on the value head. `group` and `rloo`: each token gets its
            response's advantage over the other responses to the prompt.
        gamma: GAE's discount.
        lam: GAE's lambda; `gamma=1 lam=0` is the walkthrough's one-step advantage.
        clip_range: c, the clip of the ratio.
        value_weight: c_v.
        value_clip: The value loss's clip; None: not clipped.
        entropy_weight: c_H; 0 only measures the entropy.
        normalize: Where advantages are whitened: over all tokens of the iteration, of each
            minibatch, or not at all (`baseline=value` only for `batch`).
        reward_scale: What is done to scores first: nothing; `batch`: (r - mean) / (std + 1e-5),
            unbiased; `whiten`: (r - mean) / sqrt(population variance + 1e-8).
        reward_shift: Whether `reward_scale=whiten` subtracts the mean.
        whiten_token_rewards: Whether token rewards (score less penalty) are scaled to variance 1.
        whiten_unbiased: Whether the variance of whitened advantages and token rewards is divided
            by n - 1 (TRL, trlx) instead of n (OpenAI).
        score_placement: Which tokens get the score, with `baseline=value`. `last`: the last one.
            `uniform`: each of the n tokens gets 1 / n of it, so that the reward is dense.
            `after_end`: none; the state after the end gets it and has a value too (TRL), or the
            last token where there is no such state. It needs a value model.
        missing_end: What is done to the score of a response without an end: nothing, `penalty`
            subtracts `missing_end_value`, `replace` makes the score `-missing_end_value`.
        old_log_probs: What ratios compare with. `sampled`: as recorded while sampling.
            `recomputed`: by learning's own micro-batches before the first update. `auto`:
            recomputed in half precision, in which both differ by more than a ratio should.
    """

    requires = "tokens"

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
        whiten_unbiased: bool = False,
        score_placement: Literal["last", "uniform", "after_end"] = "last",
        missing_end: Literal["none", "penalty", "replace"] = "none",
        missing_end_value: float = 1.0,
        old_log_probs: OldLogProbs = "auto",
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
        self.whiten_token_rewards, self.whiten_unbiased = whiten_token_rewards, whiten_unbiased
        self.score_placement = score_placement
        self.missing_end, self.missing_end_value = missing_end, missing_end_value
        self.old_log_probs: OldLogProbs = old_log_probs

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """`advantage` and `returns` `[B, G]` from scores less the regularizer's `penalty`."""
        tokens = require(rollout.tokens, "tokens")
        mask = tokens.mask
        scores = to_device(rollout.rewards[main], mask.device)
        scores = self._scale(self._penalise_missing_end(scores, tokens.ended))
        if self.baseline != "value":
            return self._group_baseline(rollout, scores)
        place = uniform_rewards if self.score_placement == "uniform" else terminal_rewards
        states = mask if (ends := self._states(tokens)) is None else ends.mask
        rewards = place(scores, states)
        if rollout.penalty is not None:
            rewards = rewards - rollout.penalty
        if self.whiten_token_rewards:
            rewards = whiten(rewards, states, shift_mean=False, unbiased=self.whiten_unbiased)
        advantage = gae(rewards, tokens.value, states, gamma=self.gamma, lam=self.lam)
        returns = advantage + tokens.value  # before whitening: the critic predicts real returns
        advantage = advantage.masked_fill(~mask, 0.0)
        if self.normalize == "batch":
            advantage = whiten(advantage, mask, unbiased=self.whiten_unbiased)
        return replace(rollout, advantage=advantage, returns=returns)

    def _states(self, tokens: Tokens) -> Tokens | None:
        """The tokens with the states after the end, if these have rewards and values."""
        return tokens.with_end_state() if self.score_placement == "after_end" else None

    def _group_baseline(self, rollout: Rollout, scores: Tensor) -> Rollout:
        """Each token gets its response's advantage; the score is less the sum of its penalties."""
        tokens = require(rollout.tokens, "tokens")
        if rollout.penalty is not None:
            scores = scores - rollout.penalty.sum(1)
        estimator = rloo_advantages if self.baseline == "rloo" else group_advantages
        # float64 on the CPU, where `groups` is: see advantage/formulas.py
        advantage = estimator(scores.cpu().double(), rollout.groups).float()
        advantage = to_device(advantage, tokens.mask.device)[:, None] * tokens.mask
        return replace(rollout, advantage=advantage, returns=advantage + tokens.value)

    def _penalise_missing_end(self, scores: Tensor, ended: Tensor) -> Tensor:
        """Scores `[B]`, changed as `missing_end` says where `ended` `[B]` is false."""
        if self.missing_end == "none":
            return scores
        penalised = scores - self.missing_end_value
        if self.missing_end == "replace":
            penalised = torch.full_like(scores, -self.missing_end_value)
        return torch.where(ended, scores, penalised)

    def _scale(self, scores: Tensor) -> Tensor:
        """Scores `[B]`, normalised over the batch as `reward_scale` says."""
        if self.reward_scale == "none":
            return scores
        if self.reward_scale == "batch":
            return (scores - scores.mean()) / (scores.std() + 1e-5)
        return whiten(
            scores, torch.ones_like(scores, dtype=torch.bool), shift_mean=self.reward_shift
        )

    def normalise_update(self, samples: Rollout) -> Rollout:
        """Whiten the update's advantages if `normalize` is `minibatch`."""
        if self.normalize != "minibatch":
            return samples
        tokens = require(samples.tokens, "tokens")
        advantage = require(samples.advantage, "advantages")
        advantage = whiten(advantage, tokens.mask, unbiased=self.whiten_unbiased)
        return replace(samples, advantage=advantage)

    def training_items(
        self, rollout: Rollout, model: TextModel, *, seed: int, iteration: int
    ) -> TokenBatch:
        """One item for each response."""
        del seed, iteration
        tokens = require(rollout.tokens, "tokens")
        advantage = require(rollout.advantage, "advantages")
        # the lengths are read once for all micro-batches
        returns = require(rollout.returns, "returns")
        max_rows = model.rows_at_once(tokens.mask.shape[1], max(1, len(rollout)))
        states = self._states(tokens)
        return TokenBatch(
            tokens.measured(),
            advantage,
            returns,
            rollout.old_log_prob,
            max_rows,
            states=None if states is None else states.measured(),
        )

    def loss(self, model: TextModel, batch: TokenBatch) -> Loss:
        """The class's formula over the M real tokens of a micro-batch."""
        tokens = batch.tokens
        outputs, (entropies,) = token_outputs(
            model, self.dynamics, tokens, self._entropy, value_tokens=batch.states
        )
        log_ratio, measured = token_log_ratio(outputs.log_prob, batch)
        losses, ratio = clipped_surrogate(log_ratio, tokens.real(batch.advantage), self.clip_range)
        states = tokens if batch.states is None else batch.states
        value_losses = value_loss(
            outputs.value, states.real(states.value), states.real(batch.returns), self.value_clip
        )
        if batch.states is not None:
            value_losses = end_states_added(value_losses, states, tokens)
        loss = losses + self.value_weight * value_losses - self.entropy_weight * entropies
        metrics = {
            "loss/policy": losses.detach(),
            "loss/value": value_losses.detach(),
            "policy/entropy": entropies.detach(),
            "value/mean": outputs.value.detach(),
            **ratio_metrics(ratio, self.clip_range),
            **measured,
        }
        return Loss(loss.mean(), outputs, metrics)

    def _entropy(self, step: TokenStep) -> Tensor:
        # without a bonus it is only measured: detached, its [M, V] graph is not kept
        return entropy(step.log_probs if self.entropy_weight else step.log_probs.detach())
