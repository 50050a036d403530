import math

import pytest
import torch

from rlfactory.reward.base import RewardError, check_scores
from rlfactory.reward.pickscore import PickScore, scaled

CPU = torch.device("cpu")
PROMPTS = ["a cat", "a dog", "a cat", "nothing at all"]


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("logit", 22.0),
        ("logit/26", 22 / 26),
        ("logit/100", 0.22),
        ("cosine", 0.22),
        ("mixgrpo", 0.5),
    ],
)
def test_published_scales(scale, expected):
    """Of a logit of 22, with a logit scale of 100."""
    assert scaled(torch.tensor([0.22]), 100.0, scale).item() == pytest.approx(expected, abs=1e-6)


@torch.no_grad()
def test_scores_as_on_the_models_card(save_clip, small_clip, drawn):
    """Both embeddings divided by their length, their product times `exp(logit_scale)`."""
    folder, samples = save_clip(act="gelu", logit_scale=2.5), drawn(PROMPTS)
    reward = PickScore(CPU, path=str(folder), processor=None, scale="logit")
    scores = reward.score(samples)
    check_scores(reward, scores, 4)
    model = small_clip(act="gelu", logit_scale=2.5)
    pixels = reward.clip.pixels(samples.images)
    options = {"padding": True, "truncation": True, "max_length": 77, "return_tensors": "pt"}
    image = model.get_image_features(pixel_values=pixels).pooler_output
    text = model.get_text_features(**reward.clip.tokenizer(PROMPTS, **options)).pooler_output
    image = image / image.norm(p=2, dim=-1, keepdim=True)
    text = text / text.norm(p=2, dim=-1, keepdim=True)
    expected = math.exp(2.5) * (text @ image.T).diagonal()
    torch.testing.assert_close(scores["pickscore"], expected, atol=1e-4, rtol=1e-4)
    assert expected.std() > 0.1


def test_the_default_is_a_26th(save_clip, drawn):
    path, samples = str(save_clip(act="gelu")), drawn(PROMPTS)
    logit = PickScore(CPU, path=path, processor=path, scale="logit").score(samples)["pickscore"]
    found = PickScore(CPU, path=path, processor=path).score(samples)["pickscore"]
    torch.testing.assert_close(found, logit / 26)


def test_missing_parts_are_named(save_clip):
    with pytest.raises(RewardError, match=r"^reward\.path=/nonesuch "):
        PickScore(CPU, path="/nonesuch")
    with pytest.raises(RewardError, match=r"^reward\.processor=/nonesuch "):
        PickScore(CPU, path=str(save_clip()), processor="/nonesuch")
