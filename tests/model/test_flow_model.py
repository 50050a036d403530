"""What rectified flows share: sizes, and the text's length in the pipeline's call."""

from pathlib import Path

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
