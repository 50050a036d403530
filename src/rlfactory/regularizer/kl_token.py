"""Divergence from a reference language model, in the loss or in the reward."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from rlfactory.algo.divergence import estimate, exact
from rlfactory.batch import TokenBatch, TokenOutputs
from rlfactory.dynamics.token import Token, TokenStep
from rlfactory.model.likelihood import compares_whole, counted, response_log_prob, spread
from rlfactory.model.text import TextModel
from rlfactory.nest import chunks, join, present, take
from rlfactory.regularizer.base import KL, Regularizer, WeightSet
from rlfactory.regularizer.coefficient import Coefficient
from rlfactory.rollout import Rollout, Tokens


class KLToken(Regularizer[TextModel, TokenBatch, TokenOutputs]):
    """`placement` says where the penalty goes.

    `loss`: its gradient is taken (the walkthrough: `exact`, over the vocabulary). `reward`: each
    token pays for its own, frozen at the rollout (OpenAI, TRL: k1, which may be negative), and what
    was paid is what is measured and steered by, whatever the policy does since. `none` only
    measures. As a loss k1 has no gradient in expectation, so the plan refuses it there.
    """

    needs = "tokens"
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
        micro_batch: int = 32,
    ) -> None:
        self.dynamics = dynamics
        self.coefficient = coefficient
        self.placement = placement
        self.estimator = estimator
        self.reference = reference
        self.micro_batch = micro_batch

    def penalty(
        self, model: TextModel, batch: TokenBatch, outputs: TokenOutputs
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """`coefficient mean kl` over tokens in the loss, else 0; and the divergences `[M]`."""
        if self.placement == "reward":
            paid = present(batch.tokens.divergence, "what was paid")[batch.tokens.mask]
            return paid.new_zeros(()), {KL: paid}
        kl = self._divergence(model, batch.tokens, outputs)
        weight = self.coefficient.value if self.placement == "loss" else 0.0
        return weight * kl.mean() if weight else kl.new_zeros(()), {KL: kl.detach()}

    @torch.no_grad()
    def shape(self, model: TextModel, rollout: Rollout) -> Rollout:
        """The reference's likelihoods, once for all passes, and `penalty` `[B, G]`, what each token
        pays. `exact` compares whole distributions, which are too large to keep.
        """
        tokens = present(rollout.tokens, "tokens")
        if self.estimator != "exact":
            known = response_log_prob(
                model, self.reference, tokens, self.dynamics, self.micro_batch
            )
            tokens = replace(tokens, reference_log_prob=known)
        if self.placement != "reward":
            return replace(rollout, tokens=tokens)
        paid = self._paid(model, tokens)
        tokens = replace(tokens, divergence=paid)
        return replace(rollout, tokens=tokens, penalty=self.coefficient.value * paid)

    def _paid(self, model: TextModel, tokens: Tokens) -> Tensor:
        """Divergences `[B, G]` of the tokens, 0 on padding."""
        if self.estimator != "exact" and not compares_whole(self.dynamics):
            # the rollout knows how likely its tokens were
            known = present(tokens.reference_log_prob, "the reference's likelihoods")
            return estimate(tokens.log_prob - known, self.estimator)
        parts = []
        size = model.rows_at_once(tokens.mask.shape[1], self.micro_batch)
        for rows in chunks(len(tokens.mask), size):
            part = take(tokens, rows)
            step = self._step(model.logits(part), part)
            outputs = TokenOutputs(step.log_prob, step.log_probs, step.log_prob)
            parts.append(spread(self._divergence(model, part, outputs), part))
        return join(parts)

    def _divergence(self, model: TextModel, tokens: Tokens, outputs: TokenOutputs) -> Tensor:
        """Per real token, `[M]`; of the sampling temperature's distributions."""
        if self.estimator != "exact":
            known = present(tokens.reference_log_prob, "the reference's likelihoods")
            ours = counted(self.dynamics, outputs.log_prob, outputs.log_probs, tokens)
            return estimate(ours - known[tokens.mask], self.estimator)
        with torch.no_grad(), model.weights(self.reference):
            other = self._step(model.logits(tokens), tokens)
        return exact(outputs.log_probs, other.log_probs)

    def _step(self, logits: Tensor, tokens: Tokens) -> TokenStep:
        return self.dynamics.step(logits, next=tokens.response[tokens.mask])
