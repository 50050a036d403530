"""Direct preference optimisation of texts (DPO, arXiv 2305.18290): on pairs of the data, or on the
best and the worst of each group of samples.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlfactory.algo.base import PAIR, Algorithm, Loss
from rlfactory.algo.ops.completions import completion_items, given_completion
from rlfactory.algo.ops.preference import (
    GivenPairs,
    LossType,
    PairBatch,
    best_and_worst,
    ordered_in_pairs,
    preference_losses,
    preference_metrics,
    whole_pairs,
)
from rlfactory.algo.ops.token_outputs import token_outputs
from rlfactory.dynamics.token import Token
from rlfactory.model.text_base import TextModel
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.rollout import Rollout, Tokens
from rlfactory.utils.pytree import require
from rlfactory.utils.types import BelowHalf, NonNegative, Positive, PositiveInt

PLAIN = Token()
"""At temperature 1 and not truncated: likelihoods of the data, however it is sampled later."""


class OnlineDPO(Algorithm[TextModel, PairBatch, PairBatch]):
    """With y_w the chosen completion of a prompt x, y_l the rejected one, an end of text included,

        r(y) = log p(y | x) - log p_ref(y | x),   m = r(y_w) - r(y_l),
        loss = mean over pairs of preference_losses(m), by default -log sigmoid(beta m).

    `p_ref` is the model before training. The completions are the policy's own (arXiv 2402.04792):
    of each group the one with the highest score is chosen, that with the lowest rejected. Groups
    whose scores are equal are left out.

    Args:
        loss_type: See `preference_losses`. With `ipo` r is a mean over tokens, as its authors have
            it (TRL).
        beta: The larger, the closer the policy stays to the reference.
        label_smoothing: The probability that a pair is labelled the wrong way round, for `sigmoid`
            and `robust`.
        sft_weight: Weight of the chosen completions' negative log-likelihood, a mean over tokens
            and then over pairs, beside the loss (RPO, arXiv 2404.19733).
    """

    requires = "tokens"
    uses_critic = False
    learns_from_pairs = True
    compared_weight_sets = ("reference",)

    def __init__(
        self,
        *,
        loss_type: LossType = "sigmoid",
        beta: Positive = 0.1,
        label_smoothing: BelowHalf = 0.0,
        sft_weight: NonNegative = 0.0,
    ) -> None:
        self.loss_type: LossType = loss_type
        self.beta = beta
        self.label_smoothing = label_smoothing
        self.sft_weight = sft_weight

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """1 for the tokens of the best completion of each group, -1 for those of the worst."""
        pairs = best_and_worst(rollout, rollout.rewards[main].float().cpu())
        tokens, sign = require(pairs.tokens, "tokens"), require(pairs.advantage, "advantages")
        advantage = sign.to(tokens.mask.device)[:, None] * tokens.mask
        return replace(pairs, advantage=advantage, returns=tokens.value)

    def normalise_update(self, samples: Rollout) -> Rollout:
        """The chosen completion of each pair directly before the rejected one."""
        return ordered_in_pairs(samples)

    def training_items(self, rollout: Rollout, model: TextModel, **_: int) -> PairBatch:
        """Two items for each pair."""
        return completion_items(whole_pairs(rollout), model, PairBatch)

    def loss(self, model: TextModel, batch: PairBatch) -> Loss:
        tokens = batch.tokens
        with torch.no_grad(), model.weights(REFERENCE):
            reference, _ = token_outputs(model, PLAIN, tokens)
        outputs, _ = token_outputs(model, PLAIN, tokens)
        log_prob, log_prob_ref = (_of_pairs(x.log_prob, tokens) for x in (outputs, reference))
        lengths = tokens.response_lengths.to(log_prob).view(-1, PAIR)
        log_ratios = log_prob - log_prob_ref
        compared = log_ratios / lengths if self.loss_type == "ipo" else log_ratios
        margin = compared[:, 0] - compared[:, 1]
        losses = preference_losses(margin, self.beta, self.loss_type, self.label_smoothing)
        if self.sft_weight:
            losses = losses - self.sft_weight * log_prob[:, 0] / lengths[:, 0]
        metrics = {
            "loss/policy": losses.detach(),
            **preference_metrics(log_ratios, self.beta),
            "preference/log_prob_chosen": log_prob[:, 0].detach(),
            "preference/log_prob_rejected": log_prob[:, 1].detach(),
        }
        return Loss(losses.mean(), outputs, metrics)


class DPO(GivenPairs, OnlineDPO):
    """`OnlineDPO` as published: the two completions of a pair are those of a row of the data.

    Evaluations draw from the policy.

    Args:
        chosen: The column of the data with the preferred completion, a text or a list of one
            assistant's message.
        length: The most tokens of a completion, which is cut there and then has no end; null: as
            many as fit into the model's context.
    """

    columns = ("chosen", "rejected")
    given = staticmethod(given_completion)

    def __init__(self, *, length: PositiveInt | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.length = length

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """1 for the tokens of the chosen completions, -1 for those of the rejected ones."""
        tokens = require(rollout.tokens, "tokens")
        sign = 1.0 - 2.0 * (rollout.index % PAIR).to(tokens.mask.device)
        advantage = sign[:, None] * tokens.mask
        return replace(rollout, advantage=advantage, returns=tokens.value)

    def loss(self, model: TextModel, batch: PairBatch) -> Loss:
        """The loss, and how many completions were cut."""
        found = super().loss(model, batch)
        cut = {"data/cut": (~batch.tokens.ended).float()}
        return replace(found, metrics=found.metrics | cut)


def _of_pairs(log_prob: Tensor, tokens: Tokens) -> Tensor:
    """Log-probabilities of completions `[P, 2]`, from those of their tokens `[M]`."""
    return tokens.pad(log_prob).sum(1).view(-1, PAIR)
