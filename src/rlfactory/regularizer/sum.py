"""Several penalties at once, each with a coefficient of its own."""

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel
from rlfactory.regularizer.base import KL, Regularizer
from rlfactory.regularizer.coefficient import Coefficient


@final
class Sum(Regularizer[ImageModel, Batch, Outputs]):
    """The sum of its terms, of an image model. Each term is measured as `kl/<its name>`, and its
    coefficient `kl/<its name>/coefficient` follows that; what other weight sets predict is computed
    once for all terms.
    """

    needs = "terms"

    def __init__(self, *, terms: Mapping[str, Regularizer[Any, Any, Any]]) -> None:
        self.terms = dict(terms)

    def penalty(
        self, model: ImageModel, batch: Batch, outputs: Outputs
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum of the penalties, and each term's divergences `[N]`."""
        parts = {name: term.penalty(model, batch, outputs) for name, term in self.terms.items()}
        total = torch.stack([value for value, _ in parts.values()]).sum()
        measured = {_metric(name): kl for name, (_, kls) in parts.items() for kl in kls.values()}
        return total, measured

    @property
    def references(self) -> set[str]:
        """The weight sets that any of the terms compares with."""
        return {name for term in self.terms.values() for name in term.references}

    @property
    def coefficients(self) -> dict[str, Coefficient]:
        """Each term's, by the metric that shows its value."""
        return {
            f"{_metric(name)}/coefficient": term.coefficient
            for name, term in self.terms.items()
            if term.coefficient is not None
        }

    def steer(self, moment: str, metrics: Mapping[str, float], length: float, samples: int) -> None:
        """Each term's coefficient follows its own divergence."""
        for name, term in self.terms.items():
            own = {KL: metrics[_metric(name)]} if _metric(name) in metrics else {}
            term.steer(moment, own, length, samples)


def _metric(name: str) -> str:
    return f"kl/{name}"
