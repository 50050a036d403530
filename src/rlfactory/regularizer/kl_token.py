"""Divergence from a reference language model, in the loss or in the reward."""

from dataclasses import replace
from typing import Literal, cast

import torch
from torch import Tensor

from rlfactory.algo.divergence import Estimator, estimate, exact
from rlfactory.dynamics.token import Token, TokenStep
from rlfactory.model.text import TextModel
from rlfactory.regularizer.base import Regularizer, WeightSet
from rlfactory.regularizer.coefficient import Coefficient
from rlfactory.rollout import Rollout, TokenBatch, TokenOutputs, Tokens, chunks, join, present, take


class KLToken(Regularizer[TextModel, TokenBatch, TokenOutputs]):
    """`placement` says where the penalty goes.

    `loss`: its gradient is taken (the walkthrough: `exact`, over the vocabulary). `reward`: each
    token pays for its own, frozen at the rollout (OpenAI, TRL: k1, which may be negative). `none`
    only measures. As a loss k1 has no gradient in expectation, so the plan refuses it there.
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
    ) -> tuple[Tensor, Tensor]:
        """`coefficient mean kl` over tokens in the loss, else 0; and the divergences `[M]`."""
        kl = self._divergence(model, batch.tokens, outputs)
        weight = self.coefficient.value if self.placement == "loss" else 0.0
        return weight * kl.mean() if weight else kl.new_zeros(()), kl.detach()

    @torch.no_grad()
    def shape(self, model: TextModel, rollout: Rollout) -> Rollout:
        """The reference's likelihoods, once for all passes, and `penalty` `[B, G]`, what each token
        pays. `exact` compares whole distributions, which are too large to keep.
        """
        tokens = present(rollout.tokens, "tokens")
        if self.estimator != "exact":
            tokens = replace(tokens, reference_log_prob=self._reference(model, tokens))
            rollout = replace(rollout, tokens=tokens)
        if self.placement != "reward":
            return rollout
        return replace(rollout, penalty=self.coefficient.value * self._paid(model, tokens))

    def _reference(self, model: TextModel, tokens: Tokens) -> Tensor:
        """Log-probabilities `[B, G]` under the reference, 0 on padding."""
        found = torch.zeros_like(tokens.log_prob)
        with model.weights(self.reference):
            for rows in chunks(len(found), self.micro_batch):
                part = take(tokens, rows)
                step = self._step(model.logits(part), part)
                found[rows.to(found.device)] = _spread(self._counted(step, part), part)
        return found

    def _paid(self, model: TextModel, tokens: Tokens) -> Tensor:
        """Divergences `[B, G]` of the tokens, 0 on padding."""
        reference = tokens.reference_log_prob
        if reference is not None and not self._counts_all:
            # the rollout knows how likely its tokens were
            return estimate(tokens.log_prob - reference, cast(Estimator, self.estimator))
        parts = []
        for rows in chunks(len(tokens.mask), self.micro_batch):
            part = take(tokens, rows)
            step = self._step(model.logits(part), part)
            outputs = TokenOutputs(step.log_prob, step.log_probs, step.log_prob)
            parts.append(_spread(self._divergence(model, part, outputs), part))
        return join(parts)

    def _divergence(self, model: TextModel, tokens: Tokens, outputs: TokenOutputs) -> Tensor:
        """Per real token, `[M]`; of the sampling temperature's distributions."""
        if self.estimator != "exact":
            reference = present(tokens.reference_log_prob, "the reference's likelihoods")
            return estimate(self._counted(outputs, tokens) - reference[tokens.mask], self.estimator)
        with torch.no_grad(), model.weights(self.reference):
            other = self._step(model.logits(tokens), tokens)
        return exact(outputs.log_probs, other.log_probs)

    def _step(self, logits: Tensor, tokens: Tokens) -> TokenStep:
        return self.dynamics.step(logits, next=tokens.response[tokens.mask])

    @property
    def _counts_all(self) -> bool:
        """Whether truncated likelihoods are compared before truncation: a token that the reference
        would never draw has none there.
        """
        return self.dynamics.truncates and self.dynamics.log_prob_of == "sampled"

    def _counted(self, found: TokenStep | TokenOutputs, tokens: Tokens) -> Tensor:
        if not self._counts_all:
            return found.log_prob
        return found.log_probs.gather(-1, tokens.response[tokens.mask][:, None])[:, 0]


def _spread(values: Tensor, tokens: Tokens) -> Tensor:
    """`[M]` on the real tokens, `[B, G]`, 0 on padding."""
    spread = torch.zeros_like(tokens.log_prob)
    spread[tokens.mask] = values
    return spread
