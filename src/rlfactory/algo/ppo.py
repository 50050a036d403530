"""PPO on tokens (arXiv 1707.06347) with a value head (arXiv 1909.08593); without one GRPO, RLOO,
DAPO, Dr. GRPO, GSPO, CISPO, SAPO, REINFORCE++, GMPO, VESPO, DPPO, CPPO, DRPO and MaxRL by options.

B responses have at most G tokens each; M is the number of real tokens in a micro-batch.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.algo.advantage.formulas import Divisor, group_advantages, rloo_advantages
from rlfactory.algo.advantage.gae import gae, terminal_rewards, uniform_rewards, whiten
from rlfactory.algo.base import Algorithm, Loss, OldLogProbs
from rlfactory.algo.ops.completions import completion_items
from rlfactory.algo.ops.old_log_probs import token_log_ratio
from rlfactory.algo.ops.surrogate import ratio_metrics
from rlfactory.algo.ops.token_kl import entropy
from rlfactory.algo.ops.token_outputs import (
    MissingEnd,
    RewardScale,
    end_states_added,
    overlong_penalty,
    penalise_missing_end,
    scale_scores,
    token_outputs,
    value_loss,
)
from rlfactory.algo.ops.token_surrogate import (
    Aggregation,
    TokenSurrogate,
    rollout_correction_weights,
    token_weights,
)
from rlfactory.batch import TokenBatch
from rlfactory.dynamics.token import Token, TokenStep
from rlfactory.model.text_base import TextModel
from rlfactory.rollout import Rollout, Tokens
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.pytree import require, to_device
from rlfactory.utils.types import Faults, Fraction, NonNegative, Positive

Normalize = Literal["batch", "minibatch", "none"]


class PPO(Algorithm[TextModel, TokenBatch, TokenBatch]):
    """With `r` a token's likelihood ratio, A its advantage, V its value and H the entropy,

        loss = mean max(-A r, -A clip(r, 1 - c, 1 + h)) + c_v value_loss(V) - c_H H,

    the mean over real tokens; `surrogate`, `ratio` and `aggregation` change its first term, see
    `TokenSurrogate`, `level_log_ratio` and `token_weights`. A response's score is the reward of its
    last token, unless `score_placement` says otherwise; the value loss of a state after the end is
    added to that of the last token. Where all responses of an iteration have the same score, with
    no penalty in the reward and gamma 1, A is 0, and the critic alone learns.

    Args:
        dynamics: The token sampler, for log-likelihoods as sampled.
        baseline: `value`: GAE on the value head. `group` and `rloo`: each token gets its
            response's advantage over the other responses to the prompt. `none`: GAE with values of
            0; with lam=1 the rewards still to come (REINFORCE++).
        std: With `baseline=group`, what advantages are divided by: the standard deviation of the
            group's scores, of all scores (`global`), nothing (Dr. GRPO), or the `mean` of the
            group's scores (MaxRL), which must not be negative.
        gamma: GAE's discount.
        lam: GAE's lambda; `gamma=1 lam=0` is the walkthrough's one-step advantage.
        surrogate: The loss of a token: `clip` is PPO's.
        ratio: What the ratio is of: a `token`, a response by the geometric mean over its tokens
            (`sequence`, or `sequence_token` with the gradient of the token), or by their
            `product`.
        clip_range: c, the clip of the ratio below 1; of the log-ratio below 0 (`gmpo`), of the
            divergence (`dppo`, `cppo`), or the change at which the penalty turns the gradient round
            (`drpo`: of the probability, `spo`: of the ratio).
        clip_high: h, the clip above 1; None: c. `dppo`, `cppo`: where A > 0.
        dual_clip: Bound of the loss where A < 0, times -A; None: no bound.
        soft_positive: SAPO's temperature where A > 0.
        soft_negative: SAPO's temperature elsewhere.
        power_positive: VESPO's k where A >= 0.
        power_negative: VESPO's k elsewhere.
        decay_positive: VESPO's lambda where A >= 0.
        decay_negative: VESPO's lambda elsewhere.
        divergence: What `dppo` and `cppo` bound, of the drawn token against all others: total
            variation (`tv`) or the KL divergence (`kl`).
        ratio_cap: With `dppo` and `cppo`, C of the weight min(r, C) without gradient that the
            log-likelihood then has (verl); None: the ratio itself.
        last_weight: CPPO's weight of the divergence of a response's last token; the first one's
            is 1.
        prefix_budget: CPPO's allowance of divergence for each token before.
        aggregation: The mean over tokens: over all of an update (`token`), first over each response
            (`sequence`), a sum divided by the longest possible length (`constant`), or the sum over
            each response (`sum`).
        mask_truncated: Whether responses without an end are left out of the loss. They still count
            in their group's baseline, and their values are learned.
        value_weight: c_v: weight of the value loss.
        value_clip: The value loss's clip; None: not clipped.
        entropy_weight: c_H; 0 only measures the entropy.
        normalize: Where advantages are whitened: over all tokens of the iteration, of each
            minibatch, or not at all.
        reward_scale: What is done to scores first: nothing; `batch`: (r - mean) / (std + 1e-5),
            unbiased; `whiten`: (r - mean) / sqrt(population variance + 1e-8).
        reward_shift: Whether `reward_scale=whiten` subtracts the mean.
        whiten_token_rewards: Whether token rewards (score less penalty) are scaled to variance 1.
        whiten_unbiased: Whether the variance of whitened advantages and token rewards is divided
            by n - 1 (TRL, trlx) instead of n (OpenAI); also that of `std`.
        score_placement: Which tokens get the score, with `baseline=value`. `last`: the last one.
            `uniform`: each of the n tokens gets 1 / n of it, so that the reward is dense.
            `after_end`: none; the state after the end gets it and has a value too (TRL), or the
            last token where there is no such state. It needs a value model.
        missing_end: What is done to the score of a response without an end: nothing, `penalty`
            subtracts `missing_end_value`, `replace` makes the score `-missing_end_value`.
        overlong_buffer: Share of the longest possible response, at its end, over which a
            punishment of the score rises (DAPO); 0: none.
        overlong_penalty: That punishment of a response of full length.
        old_log_probs: What ratios compare with. `sampled`: as recorded while sampling.
            `recomputed`: by learning's own micro-batches before the first update. `auto`:
            recomputed in half precision, in which both differ by more than a ratio should.
        rollout_correction: Cap of the importance weights by which the policy's loss is corrected
            for tokens that an engine drew from a slightly different distribution, see
            `rollout_correction_weights`; None: not corrected.
        missing_end_value: What is subtracted, or minus the new score.
    """

    requires = "tokens"

    @classmethod
    def needs_critic(cls, options: Mapping[str, Any]) -> bool:
        learns = bool(options.get("value_weight", 1) > 0)
        return learns or options.get("baseline", "value") == "value"

    def __init__(
        self,
        dynamics: Token | None = None,
        *,
        baseline: Literal["value", "group", "rloo", "none"] = "value",
        std: Literal["group", "global", "none", "mean"] = "group",
        gamma: Fraction = 1.0,
        lam: Fraction = 0.95,
        surrogate: Literal[
            "clip", "cispo", "sapo", "gmpo", "vespo", "dppo", "cppo", "drpo", "spo"
        ] = "clip",
        ratio: Literal["token", "sequence", "sequence_token", "product"] = "token",
        clip_range: Positive = 0.2,
        clip_high: Positive | None = None,
        dual_clip: Positive | None = None,
        soft_positive: Positive = 1.0,
        soft_negative: Positive = 1.05,
        power_positive: NonNegative = 2.0,
        power_negative: NonNegative = 3.0,
        decay_positive: Positive = 3.0,
        decay_negative: Positive = 2.0,
        divergence: Literal["tv", "kl"] = "tv",
        ratio_cap: Positive | None = None,
        last_weight: Fraction = 0.8,
        prefix_budget: NonNegative = 0.02,
        aggregation: Literal["token", "sequence", "constant", "sum"] = "token",
        mask_truncated: bool = False,
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
        overlong_buffer: Fraction = 0.0,
        overlong_penalty: NonNegative = 1.0,
        old_log_probs: OldLogProbs = "auto",
        rollout_correction: Positive | None = None,
    ) -> None:
        self.dynamics = dynamics
        self.baseline = baseline
        self.std: Divisor = std
        self.gamma, self.lam = gamma, lam
        self.surrogate = TokenSurrogate(
            surrogate,
            ratio,
            clip_range,
            clip_high,
            dual_clip,
            soft_positive,
            soft_negative,
            power=(power_positive, power_negative),
            decay=(decay_positive, decay_negative),
            divergence=divergence,
            ratio_cap=ratio_cap,
            last_weight=last_weight,
            prefix_budget=prefix_budget,
        )
        self.aggregation: Aggregation = aggregation
        self.mask_truncated = mask_truncated
        self.clip_range = clip_range
        self.ratio_tolerance = min(clip_range, 1.0) / 10  # DRPO's c is no range of ratios
        self.value_weight, self.value_clip = value_weight, value_clip
        self.entropy_weight = entropy_weight
        self.normalize: Normalize = normalize
        self.reward_scale: RewardScale = reward_scale
        self.reward_shift = reward_shift
        self.whiten_token_rewards, self.whiten_unbiased = whiten_token_rewards, whiten_unbiased
        self.score_placement = score_placement
        self.missing_end: MissingEnd = missing_end
        self.missing_end_value = missing_end_value
        self.overlong_buffer, self.overlong_penalty = overlong_buffer, overlong_penalty
        self.old_log_probs: OldLogProbs = old_log_probs
        self.rollout_correction = rollout_correction

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """Scores have values where they are placed, clips are in order, and a ratio counts once."""
        placement, baseline = options["score_placement"], options["baseline"]
        if placement == "after_end" and baseline == "none":
            message = "is after_end, and algo.baseline=none has no values of states"
            yield "score_placement", message, "algo.score_placement=last"
        elif placement in ("uniform", "after_end") and baseline in ("group", "rloo"):
            message = f"is {placement}, and algo.baseline={baseline} gives all tokens one advantage"
            yield "score_placement", message, "algo.score_placement=last"
        elif placement == "after_end" and run["model"].get("value_path") is None:
            message = (
                "is after_end, where a value head has no value; type model.value_path=PATH, or last"
            )
            yield "score_placement", message, "algo.score_placement=last"
        dual, high = options["dual_clip"], 1 + (options["clip_high"] or options["clip_range"])
        if dual is not None and options["surrogate"] != "clip":
            message = (
                f"bounds the loss of surrogate=clip, and algo.surrogate is {options['surrogate']}"
            )
            yield "dual_clip", message, "algo.dual_clip=null"
        elif dual is not None and dual <= high:
            message = (
                f"is {dual}, and ratios are clipped at {high:g}; allowed is a number above that"
            )
            yield "dual_clip", message, "algo.dual_clip=3"
        surrogate, cap = options["surrogate"], options["ratio_cap"]
        needed = {"gmpo": "sequence", "vespo": "product"}.get(surrogate, "token")
        if surrogate not in ("clip", "cispo", "sapo") and options["ratio"] != needed:
            message = f"is {options['ratio']}, and algo.surrogate={surrogate} is of {needed} ratios"
            yield "ratio", message, f"algo.ratio={needed}"
        if cap is not None and cap <= 1:
            yield "ratio_cap", f"is {cap}, and ratios begin at 1", "algo.ratio_cap=20"
        reasons = {
            "algo.reward_scale": options["reward_scale"] != "none",
            "algo.missing_end": options["missing_end"] != "none",
            "algo.overlong_buffer": options["overlong_buffer"],
            "regularizer.placement=reward": run["regularizer"].get("placement") == "reward",
        }
        if options["std"] == "mean" and (
            found := [name for name, is_so in reasons.items() if is_so]
        ):
            message = f"is mean, the divisor of scores that {found[0]} may make negative"
            yield "std", message, "algo.std=none"
        if (options["ratio"], surrogate) == ("product", "vespo"):
            return  # whose weight has no gradient: a token counts once
        if options["ratio"] == "product" and options["aggregation"] != "sequence":
            message = (
                "is product, the ratio of whole responses, and"
                f" algo.aggregation={options['aggregation']} counts it once for each token"
            )
            yield "ratio", message, "algo.aggregation=sequence"

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """`advantage` and `returns` `[B, G]` from scores less the regularizer's `penalty`."""
        tokens = require(rollout.tokens, "tokens")
        mask = tokens.mask
        scores = self._shaped(to_device(rollout.rewards[main], mask.device), tokens)
        if self.baseline in ("group", "rloo"):
            return self._group_baseline(rollout, scores)
        value = tokens.value if self.baseline == "value" else torch.zeros_like(tokens.value)
        place = uniform_rewards if self.score_placement == "uniform" else terminal_rewards
        states = mask if (ends := self._states(tokens)) is None else ends.mask
        rewards = place(scores, states)
        # a tensor: nobody waits for the device
        is_equal = (scores == scores[:1]).all() & (self.gamma == 1 and len(scores) > 1)
        if rollout.penalty is not None:
            rewards = rewards - rollout.penalty
            is_equal = is_equal & ~rollout.penalty.any()
        if self.whiten_token_rewards:
            rewards = whiten(rewards, states, shift_mean=False, unbiased=self.whiten_unbiased)
        advantage = gae(rewards, value, states, gamma=self.gamma, lam=self.lam)
        returns = advantage + value  # before whitening: the critic predicts real returns
        # equal returns tell nothing apart, and whitening would make an error of the critic a signal
        advantage = advantage.masked_fill(~mask | is_equal, 0.0)
        if self.normalize == "batch":
            advantage = whiten(advantage, mask, unbiased=self.whiten_unbiased)
        return replace(rollout, advantage=advantage, returns=returns)

    def _states(self, tokens: Tokens) -> Tokens | None:
        """The tokens with the states after the end, if these have rewards and values."""
        return tokens.with_end_state() if self.score_placement == "after_end" else None

    def _shaped(self, scores: Tensor, tokens: Tokens) -> Tensor:
        """Scores `[B]` after punishments, normalised."""
        scores = penalise_missing_end(
            scores, tokens.ended, self.missing_end, self.missing_end_value
        )
        if self.overlong_buffer:
            scores = scores - overlong_penalty(
                tokens.mask.sum(1),
                self.dynamics.length,
                self.overlong_buffer,
                self.overlong_penalty,
            )
        return scale_scores(scores, self.reward_scale, shift=self.reward_shift)

    def _group_baseline(self, rollout: Rollout, scores: Tensor) -> Rollout:
        """Each token gets its response's advantage; the score is less the sum of its penalties."""
        tokens = require(rollout.tokens, "tokens")
        if rollout.penalty is not None:
            scores = scores - rollout.penalty.sum(1)
        # float64 on the CPU, where `groups` is: see advantage/formulas.py
        scores, groups = scores.cpu().double(), rollout.groups
        if self.baseline == "rloo":
            advantage = rloo_advantages(scores, groups)
        else:
            if self.std == "mean" and (scores < 0).any():
                raise TrainingError(
                    f"algo.std=mean divides by the mean score of a group, and a score is"
                    f" {scores.min():g}; its scores are 0 or more, as a verifier's: try"
                    " algo.std=none"
                )
            advantage = group_advantages(
                scores, groups, std=self.std, unbiased=self.whiten_unbiased
            )
        mask = tokens.mask
        advantage = to_device(advantage.float(), mask.device)[:, None] * mask
        if self.normalize == "batch":
            advantage = whiten(advantage, mask, unbiased=self.whiten_unbiased)
        return replace(rollout, advantage=advantage, returns=advantage + tokens.value)

    def normalise_update(self, samples: Rollout) -> Rollout:
        """The weights of tokens; advantages whitened over the update if `normalize` says so."""
        tokens = require(samples.tokens, "tokens")
        if self.aggregation != "token" or self.mask_truncated:
            counted = tokens.ended if self.mask_truncated else torch.ones_like(tokens.ended)
            weight = token_weights(
                self.aggregation, tokens.mask.sum(1), counted, self.dynamics.length
            )
            samples = replace(samples, token_weight=weight)
        if self.normalize != "minibatch":
            return samples
        advantage = require(samples.advantage, "advantages")
        advantage = whiten(advantage, tokens.mask, unbiased=self.whiten_unbiased)
        return replace(samples, advantage=advantage)

    def training_items(self, rollout: Rollout, model: TextModel, **_: int) -> TokenBatch:
        items = completion_items(rollout, model, TokenBatch)
        states = self._states(items.tokens)
        return replace(
            items,
            old_log_prob=rollout.old_log_prob,
            states=None if states is None else states.measured(),
            token_weight=rollout.token_weight,
        )

    def loss(self, model: TextModel, batch: TokenBatch) -> Loss:
        tokens = batch.tokens
        outputs, (entropies,) = token_outputs(
            model, self.dynamics, tokens, self._entropy, value_tokens=batch.states
        )
        log_ratio, measured = token_log_ratio(outputs.log_prob, batch)
        losses, log_ratio, outside = self.surrogate.losses(
            outputs.log_prob, log_ratio, tokens.real(batch.advantage), tokens
        )
        if self.rollout_correction is not None and tokens.engine_log_prob is not None:
            correction, cut = rollout_correction_weights(tokens, self.rollout_correction)
            losses, measured = losses * correction, {**measured, "engine/truncated_share": cut}
        outputs = replace(outputs, log_ratio=log_ratio, weight=batch.weight_of_tokens())
        states = tokens if batch.states is None else batch.states
        value_losses = value_loss(
            outputs.value, states.real(states.value), states.real(batch.returns), self.value_clip
        )
        if batch.states is not None:
            value_losses = end_states_added(value_losses, states, tokens)
        weighted = losses if outputs.weight is None else outputs.weight * losses
        loss = weighted + self.value_weight * value_losses - self.entropy_weight * entropies
        metrics = {
            "loss/policy": losses.detach(),
            "policy/entropy": entropies.detach(),
            **ratio_metrics(log_ratio.exp(), self.clip_range, self.surrogate.clip_high),
            **measured,
        }
        if outside is not None:
            metrics["ratio/clip_fraction"] = outside.float()
        if self.needs_critic(vars(self)):
            metrics |= {"loss/value": value_losses.detach(), "value/mean": outputs.value.detach()}
        return Loss(loss.mean(), outputs, metrics)

    def _entropy(self, step: TokenStep) -> Tensor:
        # without a bonus it is only measured: detached, its [M, V] graph is not kept
        return entropy(step.log_probs if self.entropy_weight else step.log_probs.detach())
