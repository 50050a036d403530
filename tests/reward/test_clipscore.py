import pytest
import torch
from transformers import CLIPModel

from rlfactory.reward.base import check_scores
from rlfactory.reward.clipscore import ClipScore, scaled

CPU = torch.device("cpu")
PROMPTS = ["a cat", "a dog", "a cat", "nothing at all"]


@pytest.mark.parametrize(
    ("scale", "expected"), [("cosine", 0.27), ("logit/30", 0.9), ("logit/100", 0.27)]
)
def test_published_scales(scale, expected):
    """OpenAI's logit scale is 100: Flow-GRPO's logits by 30, DiffusionNFT's by 100."""
    assert scaled(torch.tensor([0.27]), 100.0, scale).item() == pytest.approx(expected)


@torch.no_grad()
def test_scores_are_the_models_own_logits(save_clip, drawn):
    folder, samples = str(save_clip(logit_scale=3.0)), drawn(PROMPTS)
    reward = ClipScore(CPU, path=folder, scale="logit/30")
    scores = reward.score(samples)
    check_scores(reward, scores, 4)
    model = CLIPModel.from_pretrained(folder).eval()
    tokens = reward.clip.tokenizer(PROMPTS, padding=True, return_tensors="pt")
    logits = model(**tokens, pixel_values=reward.clip.pixels(samples.images)).logits_per_image
    torch.testing.assert_close(scores["clipscore"], logits.diagonal() / 30, atol=1e-5, rtol=1e-4)
    cosine = ClipScore(CPU, path=folder).score(samples)["clipscore"]
    assert cosine.abs().max() <= 1
    assert cosine.std() > 0.01


def test_a_picture_is_scored_for_its_own_prompt(save_clip, drawn):
    reward, samples = ClipScore(CPU, path=str(save_clip()), batch_size=2), drawn(PROMPTS)
    order = torch.tensor([2, 0, 3, 1])
    mixed = type(samples)(
        [PROMPTS[i] for i in order], samples.metadata, samples.groups, samples.images[order]
    )
    found = reward.score(mixed)["clipscore"]
    torch.testing.assert_close(found, reward.score(samples)["clipscore"][order])


def test_resampling_is_an_option(save_clip, drawn):
    path, samples = str(save_clip()), drawn(PROMPTS)
    smooth = ClipScore(CPU, path=path, resample="bilinear")
    sharp = ClipScore(CPU, path=path)
    difference = smooth.clip.pixels(samples.images) - sharp.clip.pixels(samples.images)
    assert 0 < difference.abs().max() < 1
