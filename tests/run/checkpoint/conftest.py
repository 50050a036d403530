"""A model of two numbers whose checkpoints are quick to write."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import EMA

Step = Callable[..., torch.optim.Optimizer]


@pytest.fixture
def model(linear: Callable[..., ImageModel], monkeypatch: pytest.MonkeyPatch) -> ImageModel:
    made = linear(0.5, 0.25)
    made.weights.add(EMA)

    def export(folder: Path, values: Mapping[str, Tensor]) -> None:
        bias = float(values["bias"])
        (folder / "exported").write_text(str(bias))

    monkeypatch.setattr(made, "export", export)
    return made


@pytest.fixture
def stepped() -> Step:
    """Takes an optimizer step, with a new AdamW by default."""

    def step(
        model: ImageModel, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.Optimizer:
        parameters = list(model.weights.parameters.values())
        optimizer = optimizer or torch.optim.AdamW(parameters, lr=0.1)
        for i, parameter in enumerate(parameters):
            parameter.grad = parameter.detach() + i
        optimizer.step()
        return optimizer

    return step
