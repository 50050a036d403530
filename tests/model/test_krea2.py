"""Krea 2: the pipeline's guidance counts from 0, and the distilled model has one shift."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler

from rlfactory.model.krea2 import Krea2
from rlfactory.utils.errors import ModelError


def opened(folder: Path, **options: object) -> Krea2:
    return Krea2(torch.device("cpu"), path=str(folder), text_tokens=256, **({"size": 64} | options))


@pytest.fixture
def turbo(krea2_folder: Path, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(krea2_folder, tmp_path / "turbo"))
    index = folder / "model_index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"is_distilled": True}))
    return folder


@pytest.mark.parametrize(("guidance", "scale"), [(1.0, 0.0), (0.0, 0.0), (4.5, 3.5)])
def test_the_pipelines_scale_is_one_less(krea2_folder: Path, guidance: float, scale: float) -> None:
    arguments = opened(krea2_folder, guidance=guidance).pipeline_arguments()
    assert arguments["guidance_scale"] == scale


def test_the_distilled_model_has_one_shift(krea2_folder: Path, turbo: Path) -> None:
    base, distilled = (opened(folder) for folder in (krea2_folder, turbo))
    assert [distilled.resolution_of(size).shift for size in (64, 128)] == [math.exp(1.15)] * 2
    assert base.resolution_of(64).shift < base.resolution_of(128).shift < math.exp(1.15)
    distilled.pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    assert distilled.resolution_of(64).shift == 3.0
    with pytest.raises(ModelError, match=r"guidance=2: .* distilled .* type model.guidance=1"):
        opened(turbo, guidance=2.0)


def test_padding_is_not_read(krea2_folder: Path) -> None:
    model = opened(krea2_folder)
    text = model.encode(["a star", "a much longer prompt of two blue squares"]).tensors
    assert text["sequence"].shape[2:] == (3, 16)  # three of the encoder's states a token
    changed = text["sequence"].masked_fill(~text["mask"][:, :, None, None], 7.0)
    x, t = torch.randn(2, *model.resolution.shape), torch.tensor([0.3, 0.9])
    with torch.no_grad():
        found = model._predict(x, t, text | {"sequence": changed})
        torch.testing.assert_close(found, model._predict(x, t, text))
