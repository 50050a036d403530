"""Qwen-Image 2.1: rows with positions of their own, an alpha channel, and its own noise levels."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from rlfactory.model.qwen_image_21 import QwenImage21
from rlfactory.utils.errors import ModelError

CPU = torch.device("cpu")
PROMPTS = ["a cat", "two blue stars above a green square"]


@pytest.fixture
def model(qwen_image_21_folder: Path) -> QwenImage21:
    return QwenImage21(CPU, path=str(qwen_image_21_folder), size=64, text_tokens=128)


@torch.no_grad()
def test_a_row_does_not_depend_on_longer_prompts_beside_it(model: QwenImage21) -> None:
    x, t = torch.randn(2, *model.resolution.shape), torch.tensor([0.3, 0.8])
    both = model.predict(x, t, model.encode(PROMPTS))
    for row, prompt in enumerate(PROMPTS):
        alone = model.predict(x[row : row + 1], t[row : row + 1], model.encode([prompt]))
        torch.testing.assert_close(both[row : row + 1], alone, atol=1e-5, rtol=0)


@torch.no_grad()
def test_longer_prompts_are_cut_as_the_encoder_would_read_them(
    model: QwenImage21, qwen_image_21_folder: Path
) -> None:
    short = QwenImage21(CPU, path=str(qwen_image_21_folder), size=64, text_tokens=20)
    whole, cut = (each.encode([PROMPTS[1]]).tensors for each in (model, short))
    assert cut["lengths"].tolist() == [20]
    assert torch.equal(cut["sequence"], whole["sequence"][:, :20])
    assert short.prompt_metrics(PROMPTS) == {"prompts/cut": 1.0}
    assert model.prompt_metrics(PROMPTS) == {}


@torch.no_grad()
def test_transparent_pixels_are_white(model: QwenImage21, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = torch.tensor([-1.0, -1.0, -1.0, -1.0]).view(1, 4, 1, 1, 1).expand(1, 4, 1, 64, 64)
    monkeypatch.setattr(model.pipe.vae, "decode", lambda *_, **__: (pixels,))
    latents = torch.zeros(1, *model.resolution.shape)
    assert (model.decode(latents) == 255).all()
    pixels = torch.tensor([-1.0, -1.0, -1.0, 1.0]).view(1, 4, 1, 1, 1).expand(1, 4, 1, 64, 64)
    assert (model.decode(latents) == 0).all()


def test_a_model_with_noise_levels_of_its_own_is_refused(
    qwen_image_21_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "turbo"
    shutil.copytree(qwen_image_21_folder, folder)
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps(index | {"sample_sigmas": [1.0, 0.5]}))
    with pytest.raises(ModelError, match=r"sample_sigmas.*type model\.path=Qwen/Qwen-Image-2\.1"):
        QwenImage21(CPU, path=str(folder), size=64)


def test_a_checkpoint_of_another_family_is_refused(qwen_image_folder: Path) -> None:
    with pytest.raises(ModelError, match=r"is a QwenImagePipeline.*type model=qwen_image model\."):
        QwenImage21(CPU, path=str(qwen_image_folder), size=64)
