import math
from pathlib import Path

import numpy as np
import pytest
import torch
from load_script import load_script
from PIL import Image
from transformers import CLIPImageProcessorPil

from rlfactory.reward import hps
from rlfactory.reward.backbones import pretrained
from rlfactory.reward.backbones.clip import clip_preprocessing
from rlfactory.reward.base import RewardError, check_scores
from rlfactory.reward.hps import HPS, resize_and_pad

open_clip = load_script(Path(__file__).parent / "backbones" / "test_open_clip.py", "oc")

CPU = torch.device("cpu")
PROMPTS = ["a cat", "a dog", "a cat", "nothing at all"]
MEAN = np.array([0.48145466, 0.4578275, 0.40821073])[:, None, None]
STD = np.array([0.26862954, 0.26130258, 0.27577711])[:, None, None]


@pytest.fixture
def small(small_clip, save_clip, tmp_path, monkeypatch):
    """A small network in the form of `HPS_v2.1_compressed.pt`, and a folder with a tokenizer."""
    model, processor = small_clip(act="gelu"), save_clip()
    file = tmp_path / "HPS_v2.1_compressed.pt"
    weights = {k: v.contiguous() for k, v in open_clip.open_clip_names(model).items()}
    torch.save({"state_dict": weights}, file)
    monkeypatch.setattr(hps, "VIT_H_14", model.config.to_dict())
    return {"path": str(file), "processor": str(processor)}


def cubic(size, target):
    """Rows of Keys' cubic (a = -0.5), widened by the scale: an antialiased resize by hand."""
    scale = size / target
    widened = max(scale, 1.0)
    matrix = np.zeros((target, size))
    for row in range(target):
        centre = (row + 0.5) * scale
        for column in range(size):
            x = abs(column + 0.5 - centre) / widened
            near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
            matrix[row, column] = near if x < 1 else far if x < 2 else 0
    return matrix / matrix.sum(1, keepdims=True)


@pytest.mark.parametrize("size", [(60, 60), (40, 61), (30, 16), (21, 24)])
def test_preprocessing_by_hand(drawn, size):
    """The longer side becomes 24; the rest is black, the odd pixel on the right or below."""
    images = drawn(["a", "b"], *size).images
    images[0] = 255 * (images[0] > 128)  # edges, at which a cubic overshoots
    scale = 24 / max(size)
    high, wide = round(size[0] * scale), round(size[1] * scale)
    shown = images.numpy() / 255
    shown = cubic(size[0], high) @ shown @ cubic(size[1], wide).T
    expected = np.zeros((2, 3, 24, 24))
    top, left = (24 - high) // 2, (24 - wide) // 2
    expected[:, :, top : top + high, left : left + wide] = shown
    found = resize_and_pad(images, 24)
    np.testing.assert_allclose(found.numpy(), (expected - MEAN) / STD, atol=2e-5)


def test_a_picture_of_the_right_size_is_only_normalised(drawn):
    images = drawn(["a"], 224, 224).images
    expected = (images.numpy() / 255 - MEAN) / STD
    np.testing.assert_allclose(resize_and_pad(images).numpy(), expected, atol=1e-6)


def test_square_pictures_are_resized_as_pillow_does_but_for_rounding(drawn):
    images = drawn(["a"], 512, 512).images
    picture = Image.fromarray(images[0].permute(1, 2, 0).numpy()).resize((224, 224), 3)
    found = resize_and_pad(images)[0].numpy() * STD + MEAN
    assert np.abs(found - np.asarray(picture).transpose(2, 0, 1) / 255).max() < 1.5 / 255


@torch.no_grad()
def test_scores_are_open_clips(small, small_clip, drawn):
    """The whole way beside open_clip's own computation: names, fused weights, GELU, pooling."""
    samples, reward = drawn(PROMPTS, 300, 400), HPS(CPU, **small)
    scores = reward.score(samples)
    check_scores(reward, scores, 4)
    weights = open_clip.open_clip_names(small_clip(act="gelu"))
    image = open_clip.encode_image(weights, resize_and_pad(samples.images))
    tokens = torch.zeros(4, 77, dtype=torch.long)
    for row, prompt in zip(tokens, PROMPTS, strict=True):
        ids = reward.clip.tokenizer(prompt)["input_ids"]
        row[: len(ids)] = torch.tensor(ids)
    text = open_clip.encode_text(weights, tokens)
    image, text = image / image.norm(dim=1, keepdim=True), text / text.norm(dim=1, keepdim=True)
    expected = torch.diagonal(image @ text.T)
    torch.testing.assert_close(scores["hps"], expected, atol=1e-5, rtol=1e-4)
    assert expected.std() > 0.01
    assert math.isclose(reward.clip.logit_scale, 100, rel_tol=1e-3)


def test_cropping_is_an_option(small, drawn):
    samples = drawn(PROMPTS, 300, 400)
    reward = HPS(CPU, **small, fit="crop")
    expected = clip_preprocessing(CLIPImageProcessorPil())(samples.images)
    assert torch.equal(reward.clip.pixels(samples.images), expected)
    padded = HPS(CPU, **small).score(samples)["hps"]
    assert not torch.allclose(reward.score(samples)["hps"], padded)


@pytest.mark.parametrize(
    ("version", "name"), [("v2.1", "HPS_v2.1_compressed.pt"), ("v2.0", "HPS_v2_compressed.pt")]
)
def test_a_version_names_its_file(small, monkeypatch, version, name):
    asked = []

    def download(*where, **_):
        asked.append(where)
        return small["path"]

    monkeypatch.setattr(pretrained, "hf_hub_download", download)
    monkeypatch.setattr(pretrained, "unreachable", lambda repo: None)
    HPS(CPU, processor=small["processor"], version=version)
    assert asked == [("xswu/HPSv2", name)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(small, drawn, dtype):
    samples = drawn(PROMPTS)
    found = HPS(CPU, **small, dtype=dtype).score(samples)["hps"]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, HPS(CPU, **small).score(samples)["hps"], atol=0.05, rtol=0)


def test_a_file_of_another_network(small, monkeypatch):
    monkeypatch.undo()
    message = r"^reward\.path=\S+ is no ViT-H-14 of open_clip: it lacks .* more such faults; type"
    with pytest.raises(RewardError, match=message):
        HPS(CPU, **small)


def test_no_file(small):
    with pytest.raises(RewardError, match=r"^reward\.path=/nonesuch\.pt: .*type reward\.path=FILE"):
        HPS(CPU, path="/nonesuch.pt", processor=small["processor"])


def test_no_tokenizer(small):
    with pytest.raises(RewardError, match=r"^reward\.processor=/nonesuch .*no folder"):
        HPS(CPU, path=small["path"], processor="/nonesuch")
