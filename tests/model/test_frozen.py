"""A pipeline as an adapter begins with it."""

from pathlib import Path

import pytest
import torch
from diffusers import StableDiffusionPipeline

from rlfactory.model.frozen import load_frozen, open_pipeline
from rlfactory.model.memory import Memory
from rlfactory.model.precision import Precision
from rlfactory.model.prompt_cache import PromptCache

CPU = torch.device("cpu")
HALF = Precision(weights="bfloat16", rollout="bfloat16", learning="bfloat16")


@pytest.mark.parametrize("whole", [None, "unet"])
def test_each_part_has_its_precision_and_nothing_is_trained(
    sd_folder: Path, whole: str | None
) -> None:
    pipe = load_frozen(
        StableDiffusionPipeline, str(sd_folder), CPU, HALF, Memory(vae_slicing=True), whole=whole
    )
    exact = torch.float32
    assert pipe.vae.dtype == exact  # a picture in half precision is another picture
    assert pipe.unet.dtype == (exact if whole else torch.bfloat16)
    assert pipe.text_encoder.dtype == torch.bfloat16
    parts = [pipe.vae, pipe.unet, pipe.text_encoder]
    assert not any(p.requires_grad for part in parts for p in part.parameters())
    assert not any(part.training for part in parts)
    assert pipe.vae.use_slicing


def test_encoders_come_along_where_a_prompt_is_new(sd_folder: Path, tmp_path: Path) -> None:
    def opened(*prompts: str):
        cache = PromptCache(tmp_path, prompts)
        given = (str(sd_folder), CPU, Precision(), Memory(), cache)
        return open_pipeline(
            StableDiffusionPipeline, *given, encode, whole=None, always=["a"], safety_checker=None
        )

    def encode(prompts: list[str]) -> dict[str, torch.Tensor]:
        return {"length": torch.tensor([float(len(prompt)) for prompt in prompts])}

    pipe, texts = opened("bb")
    assert pipe.text_encoder is not None
    assert texts(["a", "bb"]).tensors["length"].tolist() == [1.0, 2.0]
    assert opened("bb")[0].text_encoder is None
    assert opened("bb", "new")[0].text_encoder is not None
