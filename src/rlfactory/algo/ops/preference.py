"""Losses of direct preference optimisation, and pairs of samples: a chosen and a rejected one.

P is the number of pairs. In a batch of pairs the two samples of each follow one another, the chosen
one first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, relu

from rlfactory.algo.base import PAIR
from rlfactory.batch import TokenBatch, TrainingItems
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require, widened

LossType = Literal["sigmoid", "ipo", "hinge", "robust"]


@dataclass(frozen=True)
class PairBatch(TokenBatch):
    """Responses in pairs, the two of a pair one after the other, whose loss is one a pair."""

    @property
    def weight(self) -> float:
        """Weight of this batch's mean loss among the batches of an update: its pairs."""
        return len(self) / PAIR

    def starts(self, size: int) -> range:
        """Starts of micro-batches of at most `size` responses, or of one pair if that is more."""
        return range(0, len(self), _whole(super().starts(size).step))


@dataclass(frozen=True)
class PairItems(TrainingItems):
    """Items of samples in pairs, those of a pair at one time one after the other."""

    def starts(self, size: int) -> range:
        """Starts of micro-batches of at most `size` items, or of two where that is more."""
        return super().starts(_whole(size))

    @classmethod
    def of(cls, items: TrainingItems) -> "PairItems":
        """The items of samples of which each two that follow one another are a pair."""
        samples, count = items.t.shape
        numbers = torch.arange(samples * count, device=items.t.device)
        in_pairs = numbers.view(-1, PAIR, count).transpose(1, 2).flatten()
        return widened(cls, items, selected=in_pairs)


def _whole(size: int) -> int:
    """The samples in a micro-batch of whole pairs."""
    return max(PAIR, size - size % PAIR)


def preference_losses(
    margin: Tensor, beta: float, loss_type: LossType, label_smoothing: float = 0.0
) -> Tensor:
    """The loss of pairs with the margin m, the chosen sample's log-ratio less the rejected one's:

        sigmoid  -(1 - e) log sigmoid(beta m) - e log sigmoid(-beta m)
                 (DPO, arXiv 2305.18290; with e > 0 conservative DPO)
        robust   (-(1 - e) log sigmoid(beta m) + e log sigmoid(-beta m)) / (1 - 2 e)
                 (arXiv 2403.00409)
        hinge    max(0, 1 - beta m)                            (SLiC, arXiv 2305.10425)
        ipo      (m - 1 / (2 beta))^2                          (IPO, arXiv 2310.12036)

    Args:
        margin: m, `[P]` with gradient.
        beta: The strength of the tie to the reference.
        loss_type: The row of the table.
        label_smoothing: e, the probability that a pair is labelled the wrong way round.

    Returns:
        `[P]`.
    """
    right, wrong = logsigmoid(beta * margin), logsigmoid(-beta * margin)
    e = label_smoothing
    match loss_type:
        case "sigmoid":
            return -(1 - e) * right - e * wrong
        case "robust":
            return (e * wrong - (1 - e) * right) / (1 - 2 * e)
        case "hinge":
            return relu(1 - beta * margin)
        case "ipo":
            return (margin - 1 / (2 * beta)) ** 2


def preference_metrics(log_ratios: Tensor, beta: float) -> dict[str, Tensor]:
    """Implicit rewards `beta log(p / p_ref)` of pairs, each metric `[P]`.

    Args:
        log_ratios: Of the chosen and the rejected samples, `[P, 2]`.
        beta: That of the loss.
    """
    chosen, rejected = (beta * log_ratios.detach()).unbind(1)
    return {
        "preference/chosen": chosen,
        "preference/rejected": rejected,
        "preference/margin": chosen - rejected,
        "preference/accuracy": (chosen > rejected).float(),
    }


def ordered_in_pairs(samples: Rollout) -> Rollout:
    """The samples of some groups of two, the two of a group together, the chosen one first.

    Args:
        samples: The chosen ones have an advantage above 0, the rejected ones below.
    """
    advantage = require(samples.advantage, "advantages")
    sign = advantage.flatten(1)[:, 0] if advantage.ndim > 1 else advantage
    order = sign.argsort(descending=True, stable=True).cpu()
    return samples[order[samples.groups[order].argsort(stable=True)]]


class GivenPairs:
    """Lets an algorithm on pairs, named after it, learn from those of the data: of each row one.

    Args:
        chosen: The column of the data with the preferred sample.
        rejected: The column with the other one.
    """

    samples_from: ClassVar[Literal["policy", "data"]] = "data"
    data_scores: ClassVar[Mapping[str, tuple[str, str]]] = {
        "loss": ("loss/policy", "lower"),
        "preference_accuracy": ("preference/accuracy", "higher"),
        "margin": ("preference/margin", "higher"),
    }

    def __init__(
        self, *given: Any, chosen: str = "chosen", rejected: str = "rejected", **options: Any
    ) -> None:
        super().__init__(*given, **options)
        self.chosen, self.rejected = chosen, rejected

    @staticmethod
    def given(prompt: Prompt, column: str, key: str) -> Any:
        """The value of a row under a column, which the option `key` names."""
        raise NotImplementedError

    def completion(self, prompt: Prompt, member: int) -> tuple[str, Any]:
        """The prompt, and the chosen sample (member 0) or the rejected one, as the data have it."""
        columns = {"chosen": self.chosen, "rejected": self.rejected}
        found = [self.given(prompt, column, key) for key, column in columns.items()]
        if found[0] == found[1]:
            shown = f", {found[0][:60]!r}" if isinstance(found[0], str) else ""
            raise PromptError(
                f"the prompt {prompt.text[:60]!r}: its {self.chosen!r} and {self.rejected!r} are"
                f" equal{shown}; a pair must differ, so remove this row"
            )
        return prompt.text, found[member % PAIR]


def whole_pairs(samples: Rollout) -> Rollout:
    """The same samples; a single one, which pads micro-batches, is paired with itself."""
    return samples[torch.zeros(PAIR, dtype=torch.int64)] if len(samples) == 1 else samples


def best_and_worst(rollout: Rollout, scores: Tensor) -> Rollout:
    """The samples of each group with the highest score, advantage 1, and the lowest, -1.

    Of equal scores the first sample counts as the higher one; groups without any difference are
    left out.

    Args:
        rollout: B samples.
        scores: `[B]`, none of them NaN.
    """
    order = scores.argsort(descending=True, stable=True)
    order = order[rollout.groups[order].argsort(stable=True)]
    changes = rollout.groups[order].diff().nonzero().flatten() + 1
    ends = torch.tensor([len(order)])
    first = order[torch.cat([changes.new_zeros(1), changes])] if len(order) else order
    last = order[torch.cat([changes, ends]) - 1] if len(order) else order
    differs = scores[first] > scores[last]
    rows = torch.stack([first[differs], last[differs]], 1).flatten()
    advantage = torch.tensor([1.0, -1.0]).repeat(len(rows) // PAIR)
    return replace(rollout[rows], advantage=advantage)
