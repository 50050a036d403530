"""A sum of penalties on an image model, each with its own coefficient."""

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import KL, Regularizer
from rlfactory.regularizer.coefficient import Coefficient
from rlfactory.rollout import Rollout


@final
class Sum(Regularizer[ImageModel, Batch, Outputs]):
    """The sum of the terms' penalties.

    A term's divergence is logged as `kl/<name>`, its coefficient, which adapts to that divergence,
    as `kl/<name>/coefficient`. Terms with the same weight set share its forward pass.

    Args:
        terms: Regularizers by name: each logged as kl/NAME.
    """

    requires = "terms"

    def __init__(self, *, terms: Mapping[str, Regularizer[Any, Any, Any]]) -> None:
        self.terms = dict(terms)

    def penalty(
        self, model: ImageModel, batch: Batch, outputs: Outputs
    ) -> tuple[Tensor, dict[str, Tensor]]:
        penalties = {name: term.penalty(model, batch, outputs) for name, term in self.terms.items()}
        total = torch.stack([value for value, _ in penalties.values()]).sum()
        divergences = {
            _metric(name): kl for name, (_, kls) in penalties.items() for kl in kls.values()
        }
        return total, divergences

    def weigh(self, everyone: Rollout, main: str) -> Rollout:
        """By the term that weighs; the weights are those of all terms."""
        for term in self.terms.values():
            everyone = term.weigh(everyone, main)
        return everyone

    def take_reset(self) -> bool:
        """As any term asks for it."""
        return any([term.take_reset() for term in self.terms.values()])

    @property
    def references(self) -> set[str]:
        """The weight sets that the terms compare with."""
        return {name for term in self.terms.values() for name in term.references}

    @property
    def coefficients(self) -> dict[str, Coefficient]:
        """Each term's coefficients by the metric names that their values are logged under."""
        return {
            f"{_metric(name)}/{key.removeprefix('kl/')}": coefficient
            for name, term in self.terms.items()
            for key, coefficient in term.coefficients.items()
        }

    def update_coefficients(
        self, moment: str, metrics: Mapping[str, float], length: float, samples: int
    ) -> None:
        """Adapt each term's coefficient to its own divergence."""
        for name, term in self.terms.items():
            own = {KL: metrics[_metric(name)]} if _metric(name) in metrics else {}
            term.update_coefficients(moment, own, length, samples)


def _metric(name: str) -> str:
    return f"kl/{name}"
