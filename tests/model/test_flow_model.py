"""What rectified flows share: sizes, and the text's length in the pipeline's call."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from rlfactory.model.flow_model import FlowModel
from rlfactory.model.qwen_image import QwenImage
from rlfactory.model.z_image import ZImage
from rlfactory.utils.errors import ModelError


@pytest.fixture
def models(qwen_image_folder: Path, z_image_folder: Path) -> list[FlowModel]:
    options = {"size": 64, "text_tokens": 128}
    return [
        QwenImage(torch.device("cpu"), path=str(qwen_image_folder), **options),
        ZImage(torch.device("cpu"), path=str(z_image_folder), **options),
    ]


def test_a_token_is_two_by_two_latents(models: list[FlowModel]) -> None:
    found = [(m.resolution_of(32).shape, m.resolution_of(32).tokens) for m in models]
    assert found == [((4, 8, 8), 16), ((16, 4, 4), 4)]
    for model, unit in zip(models, (8, 16), strict=True):
        with pytest.raises(ModelError, match=rf"^size=36: multiples of {unit} are possible"):
            model.resolution_of(36)


def test_the_pipeline_is_told_the_texts_length(models: list[FlowModel]) -> None:
    assert {m.pipeline_arguments()["max_sequence_length"] for m in models} == {128}


def test_adapters_are_on_attention_alone_by_default(models: list[FlowModel]) -> None:
    for model in models:
        names = {name.split(".lora_")[0] for name in model.weights.parameters}
        assert names
        assert all(name.endswith(tuple(model.adapted)) for name in names)


@pytest.mark.parametrize(
    ("kind", "times"), [("exact", [903.7, 500.0, 8.9]), ("truncated", [903.0, 500.0, 8.0])]
)
def test_times_are_thousandths_whole_or_not(kind: str, times: list[float]) -> None:
    model = cast(FlowModel, SimpleNamespace(timesteps=kind))
    found = FlowModel._times(model, torch.tensor([0.9037, 0.5, 0.0089]))
    torch.testing.assert_close(found, torch.tensor(times))
