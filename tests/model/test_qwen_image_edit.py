"""Qwen-Image-Edit: the text encoder reads the picture, before the negative prompt too."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as edit_plus
from PIL import Image
from tiny_pipelines import with_pictures

from rlfactory.model.pipelines.embedding_cache import PromptCache
from rlfactory.model.qwen_image_edit import QwenImageEdit
from rlfactory.prompts.ops.pictured import PicturedText
from rlfactory.utils.errors import ModelError

Make = Callable[..., QwenImageEdit]
TEXTS = ["make the circle red", "make the circle red"]


@pytest.fixture
def make(qwen_image_edit_folder: Path) -> Make:
    def build(**options: object) -> QwenImageEdit:
        known = {"path": str(qwen_image_edit_folder), "size": 64, "text_tokens": 384}
        return QwenImageEdit(torch.device("cpu"), **(known | options))

    return build


@torch.no_grad()
def test_both_passes_of_guidance_read_the_prompts_own_picture(make: Make) -> None:
    model, plain = make(guidance=3.0, negative_prompt="stars"), make()
    prompts = with_pictures(model, TEXTS)
    rows = model.encode(prompts).tensors
    assert not torch.equal(*rows["sequence"])
    assert not torch.equal(*rows["negative_sequence"])
    stars = plain.encode([type(p)("stars", p.source) for p in prompts])
    x, t = torch.randn(2, *model.resolution.shape), torch.full((2,), 0.5)
    positive, negative = (plain.predict(x, t, each) for each in (plain.encode(prompts), stars))
    expected = model._combine(negative, positive, torch.ones(len(positive)))
    torch.testing.assert_close(
        model.predict(x, t, model.encode(prompts)), expected, atol=1e-5, rtol=0
    )


def test_pictures_beside_samples_of_any_size_are_the_pipelines(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, seen = make(size=[48, 80]), list[torch.Tensor]()
    encode = model.pipe.vae.encode

    def encoded(pixels: torch.Tensor) -> Any:
        seen.append(pixels)
        return encode(pixels)

    monkeypatch.setattr(model.pipe.vae, "encode", encoded)
    monkeypatch.setattr(edit_plus, "VAE_IMAGE_SIZE", 48 * 80)
    (prompt,) = with_pictures(model, TEXTS[:1])
    assert isinstance(prompt, PicturedText)
    picture = prompt.open().resize((80, 48), Image.Resampling.LANCZOS)
    shown = {"height": 48, "width": 80, "num_inference_steps": 2, "output_type": "latent"}
    model.pipe(prompt=str(prompt), image=picture, **shown, **model.pipeline_arguments())
    model.encode([prompt])
    assert torch.equal(*seen)
    assert seen[0].shape[-2:] == (64, 64)


def test_the_cache_tells_sizes_and_negative_prompts_apart(make: Make, tmp_path: Path) -> None:
    model = make(guidance=3.0)
    cache = PromptCache(tmp_path, tuple(with_pictures(model, TEXTS)))

    def is_stored(**options: object) -> bool:
        return make(prompt_cache=cache, **options).pipe.text_encoder is None

    make(prompt_cache=cache, guidance=3.0).prepare()
    assert is_stored(guidance=4.0)
    assert not is_stored()
    assert not is_stored(guidance=3.0, negative_prompt="stars")
    assert not is_stored(guidance=3.0, size=32)


def test_the_tokens_of_the_picture_count_towards_the_longest_prompt(make: Make) -> None:
    for tokens, cut in ((313, {}), (312, {"prompts/cut": 1.0})):
        model = make(text_tokens=tokens)
        (prompt,) = with_pictures(model, ["make the circle"])
        picture = prompt.open()
        read, _ = model.pipe.encode_prompt([str(prompt)], image=[model._shown(picture)])
        assert read.shape[1] == 313
        assert model.prompt_metrics([prompt]) == cut


def test_the_first_pipeline_of_its_name_is_refused_with_a_reason(
    make: Make, qwen_image_edit_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "first"
    shutil.copytree(qwen_image_edit_folder, folder)
    index = json.loads((folder / "model_index.json").read_text())
    index["_class_name"] = "QwenImageEditPipeline"
    (folder / "model_index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"is a QwenImageEditPipeline.*qwen_image_edit with a la"):
        make(path=str(folder))


def test_a_checkpoint_of_another_family_is_refused(make: Make, qwen_image_folder: Path) -> None:
    with pytest.raises(ModelError, match=r"is a QwenImagePipeline.*type model=qwen_image model\."):
        make(path=str(qwen_image_folder))
