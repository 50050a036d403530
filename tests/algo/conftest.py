"""Published inputs, a network that is a table, and one that predicts noise."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from rlfactory.batch import Batch
from rlfactory.dynamics.ops.forward_process import RectifiedFlow, VariancePreserving
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import OLD, WeightSets
from rlfactory.rollout import Condition


class TableModel:
    """A network whose prediction is its only parameter; its old policy predicts another table."""

    forward_process = RectifiedFlow()
    device = torch.device("cpu")

    def __init__(self, v: Tensor, v_old: Tensor) -> None:
        self.v = nn.Parameter(v_old.clone())
        self.weights = WeightSets({"v": self.v})
        self.weights.add(OLD)
        self.v.data = v.clone()

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        return self.v * 1


def rows(values: list[list[float]]) -> Tensor:
    return torch.tensor(values).view(2, 1, 2, 2)


@dataclass(frozen=True)
class Golden:
    """Provenance: diffusion.md appendix A, the inputs of NFT, AWM and V-GRPO."""

    x0: Tensor
    eps: Tensor
    t: Tensor
    v: Tensor
    v_old: Tensor
    advantage: Tensor

    def model(self, v: Tensor | None = None) -> TableModel:
        return TableModel(self.v if v is None else v, self.v_old)

    def batch(self, **changes: object) -> Batch:
        batch = Batch(
            x=RectifiedFlow().noise(self.x0, self.eps, self.t),
            t=self.t,
            x0=self.x0,
            sample=torch.arange(2),
            condition=Condition({}),
            advantage=self.advantage,
            eps=self.eps,
        )
        return replace(batch, **changes)


@pytest.fixture
def golden() -> Golden:
    """Appendix A's tensors."""
    v = rows([[0.1, 0.5, 0.8, -2], [-0.7, 0.9, 0.1, 0.5]])
    return Golden(
        x0=rows([[0.3, -0.8, 0.1, 1.2], [1, 0, -0.5, -0.4]]),
        eps=rows([[0.5, -0.2, 1, -1], [0.1, 0.7, -0.3, 0.2]]),
        t=torch.tensor([0.6, 0.3]),
        v=v,
        v_old=v + 0.05 * rows([[1, -1, 2, 0], [0, 1, 1, -2]]),
        advantage=torch.tensor([2.0, -1.0]),
    )


@pytest.fixture
def noisy(linear: Callable[..., ImageModel]) -> Callable[..., ImageModel]:
    """Makes the two-number model, which predicts the noise of Stable Diffusion 1's process."""

    def make(weight: float = 0.3, bias: float = -0.1) -> ImageModel:
        model = linear(weight, bias)
        model.forward_process = VariancePreserving.scaled_linear()
        return model

    return make
