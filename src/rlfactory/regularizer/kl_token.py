"""KL penalty towards a reference language model, in the loss or in the reward.

B responses of G tokens; M is the number of real tokens in a micro-batch.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.algo.ops.token_kl import estimate_kl, exact_kl
from rlfactory.algo.ops.token_outputs import token_outputs
from rlfactory.batch import TokenBatch, TokenOutputs
from rlfactory.dynamics.token import Token
from rlfactory.model.text_base import TextModel, response_log_prob
from rlfactory.regularizer.base import KL, Regularizer, WeightSet
from rlfactory.regularizer.coefficient import Coefficient
from rlfactory.rollout import Rollout, Tokens
from rlfactory.utils.pytree import require
from rlfactory.utils.types import Faults


class KLToken(Regularizer[TextModel, TokenBatch, TokenOutputs]):
    """`kl = KL(p || p_ref)` of each token, estimated or exact (`algo/ops/token_kl.py`).

    Args:
        dynamics: The token sampler; the distributions are those at its temperature.
        placement: `loss`: the penalty has a gradient (the walkthrough: `exact`). `reward`: the
            divergence of each token at the rollout is subtracted from its reward (OpenAI, TRL: k1,
            which may be negative); that divergence is then the one logged and controlled, however
            the policy moves later. `none`: the divergence is only measured.
        estimator: See `estimate_kl`; `exact` sums over the vocabulary. k1 in the loss has gradient
            0 in expectation, so the plan refuses it.
        weighting: With `placement=loss`, whether a token's estimate is weighted by the
            algorithm's `ratio`, with its gradient (DeepSeek-V3.2, TRL): the estimate is of tokens
            that the old policy drew, and only so is its gradient unbiased.
        micro_batch: Responses in one forward pass of `shape_reward`.
    """

    requires = "tokens"
    reference: WeightSet
    coefficient: Coefficient

    def __init__(
        self,
        dynamics: Token,
        *,
        coefficient: Coefficient,
        placement: Literal["loss", "reward", "none"] = "loss",
        estimator: Literal["exact", "k1", "k2", "k3", "abs"] = "exact",
        reference: WeightSet = "reference",
        weighting: Literal["none", "ratio"] = "none",
        micro_batch: int = 32,
    ) -> None:
        self.dynamics = dynamics
        self.coefficient = coefficient
        self.placement = placement
        self.estimator = estimator
        self.reference = reference
        self.weighting = weighting
        self.micro_batch = micro_batch

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """An estimator in the loss has a gradient; weighted, k1 has that of the divergence."""
        placed = (options["placement"], options["estimator"], options["weighting"])
        if placed == ("loss", "k1", "none"):
            message = (
                "is k1, whose gradient in a loss is zero in expectation; allowed are exact and k2"
            )
            yield "estimator", message, "regularizer.estimator=exact"

    def penalty(
        self, model: TextModel, batch: TokenBatch, outputs: TokenOutputs
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """`coefficient mean(kl)` over tokens if `placement` is `loss`, else 0; and kl `[M]`.

        The mean is that of the algorithm's surrogate.
        """
        if self.placement == "reward":
            kl = batch.tokens.real(require(batch.tokens.divergence, "the rollout's divergence"))
            return kl.new_zeros(()), {KL: kl}
        kl = self._divergence(model, batch.tokens, outputs)
        weight = self.coefficient.value if self.placement == "loss" else 0.0
        if not weight:
            return kl.new_zeros(()), {KL: kl.detach()}
        penalties = kl
        if self.weighting == "ratio":
            penalties = penalties * require(outputs.log_ratio, "a likelihood ratio").exp()
        if outputs.weight is not None:
            penalties = penalties * outputs.weight
        return weight * penalties.mean(), {KL: kl.detach()}

    @torch.no_grad()
    def shape_reward(self, model: TextModel, rollout: Rollout) -> Rollout:
        """Store the reference's log-probabilities, and the `penalty` if `placement` is `reward`.

        They are computed once for all epochs; `exact` needs distributions over the vocabulary,
        which are too large to store.
        """
        tokens = require(rollout.tokens, "tokens")
        if self.estimator != "exact":
            log_prob = response_log_prob(
                model, self.reference, tokens, self.dynamics, self.micro_batch
            )
            tokens = replace(tokens, reference_log_prob=log_prob)
        if self.placement != "reward":
            return replace(rollout, tokens=tokens)
        kl = self._rollout_divergence(model, tokens)
        if model.weights.is_policy(self.reference):  # then what was measured is rounding
            kl = torch.zeros_like(kl)
        tokens = replace(tokens, divergence=kl)
        return replace(rollout, tokens=tokens, penalty=self.coefficient.value * kl)

    def _rollout_divergence(self, model: TextModel, tokens: Tokens) -> Tensor:
        """Divergence of each token under the policy that sampled, `[B, G]`, 0 on padding."""
        if self.estimator != "exact" and model.precision.replays_exactly:
            # the rollout has the policy's log-probabilities already
            reference = require(tokens.reference_log_prob, "the reference's likelihoods")
            return estimate_kl(tokens.log_prob - reference, self.estimator)
        divergence = torch.zeros_like(tokens.log_prob)
        tokens, size = tokens.measured(), model.rows_at_once(divergence.shape[1], self.micro_batch)
        for start in range(0, len(divergence), size):
            rows = slice(start, start + size)
            part = tokens.part(rows)
            outputs, _ = token_outputs(model, self.dynamics, part)
            kl = self._divergence(model, part, outputs)
            divergence[rows, : part.mask.shape[1]] = part.pad(kl)
        return divergence

    def _divergence(self, model: TextModel, tokens: Tokens, outputs: TokenOutputs) -> Tensor:
        """Divergence of each real token at the sampling temperature, `[M]`."""
        if self.estimator != "exact":
            reference = require(tokens.reference_log_prob, "the reference's likelihoods")
            return estimate_kl(outputs.log_prob - tokens.real(reference), self.estimator)
        with torch.no_grad(), model.weights(self.reference):
            if outputs.log_probs is not None:
                log_probs = self.dynamics.log_probs(model.forward(tokens)[0])
            else:
                reference_states, project = model.states_and_projection(tokens)
        if outputs.log_probs is not None:
            return exact_kl(outputs.log_probs, log_probs)

        def divergence(logits: Tensor, states: Tensor) -> tuple[Tensor]:
            with torch.no_grad():
                reference = self.dynamics.log_probs(project(states))
            return (exact_kl(self.dynamics.log_probs(logits), reference),)

        states = require(outputs.states, "hidden states")
        return model.measure_states(states, divergence, reference_states)[0]
