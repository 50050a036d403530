"""What the tests of models share: moving weights, and what has no gradient."""

from collections.abc import Callable

import pytest
import torch
from diffusers import DiffusionPipeline
from tiny_pipelines import *  # noqa: F403  (its fixtures)
from tiny_pipelines import with_pictures

from rlfactory.model.base import ImageModel


@pytest.fixture
def train() -> Callable[[ImageModel], None]:
    """Moves every trainable tensor, as an update would."""

    def move(model: ImageModel, by: float = 0.05) -> None:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.weights.parameters.values():
                parameter += by * torch.randn(parameter.shape, generator=generator)

    return move


@pytest.fixture
def without_gradient() -> Callable[[ImageModel], list[str]]:
    """The trained tensors that a prediction gives no gradient."""

    def names(model: ImageModel) -> list[str]:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2, *model.resolution.shape, generator=generator)
        condition = model.encode(with_pictures(model, ["a red circle", "two blue stars"]))
        prediction = model.predict(x, torch.tensor([0.3, 0.8]), condition)
        (prediction * torch.randn(x.shape, generator=generator)).sum().backward()
        parameters = model.weights.parameters.items()
        return [name for name, p in parameters if p.grad is None or not (p.grad != 0).any()]

    return names


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[DiffusionPipeline], list[str]]:
    """The prompts that go through a pipeline's text encoders from now on."""

    def listen(pipe: DiffusionPipeline) -> list[str]:
        seen: list[str] = []
        encode_prompt = pipe.encode_prompt

        def counted(prompts: list[str], *args: object, **options: object) -> object:
            seen.extend(prompts)
            return encode_prompt(prompts, *args, **options)

        monkeypatch.setattr(pipe, "encode_prompt", counted)
        return seen

    return listen
