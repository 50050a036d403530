"""Divergence from a reference language model, in the loss or in the reward."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from rlfactory.algo.divergence import estimate, exact
from rlfactory.dynamics.token import Token
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
        """`penalty` `[B, G]`, what each token pays."""
        if self.placement != "reward":
            return rollout
        tokens = present(rollout.tokens, "tokens")
        parts = []
        for rows in chunks(len(rollout), self.micro_batch):
            part = take(tokens, rows)
            step = self.dynamics.step(model.forward(part)[0], next=part.response[part.mask])
            outputs = TokenOutputs(step.log_prob, step.log_probs, step.log_prob)
            paid = torch.zeros_like(part.log_prob)
            paid[part.mask] = self.coefficient.value * self._divergence(model, part, outputs)
            parts.append(paid)
        return replace(rollout, penalty=join(parts))

    def _divergence(self, model: TextModel, tokens: Tokens, outputs: TokenOutputs) -> Tensor:
        """Per real token, `[M]`; of the sampling temperature's distributions."""
        with torch.no_grad(), model.weights(self.reference):
            logits, _ = model.forward(tokens)
            other = self.dynamics.step(logits, next=tokens.response[tokens.mask])
        if self.estimator == "exact":
            return exact(outputs.log_probs, other.log_probs)
        return estimate(outputs.log_prob - other.log_prob, self.estimator)
