import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rlfactory.reward.aesthetic import WIDTH, Aesthetic, load_head
from rlfactory.reward.backbones.pretrained import INNER
from rlfactory.reward.base import RewardError, check_scores

CPU = torch.device("cpu")
PUBLISHED = Path(__file__).parent / "published" / "laion_aesthetic_head.json"
PROMPTS = ["a cat", "a dog", "a cat"]


def random_head(seed=0):
    """Weights under the published names, of a size that keeps ratings apart."""
    generator = torch.Generator().manual_seed(seed)
    shapes = json.loads(PUBLISHED.read_text())
    return {
        name: torch.randn(shape, generator=generator) * (2 / shape[-1]) ** 0.5
        for name, shape in shapes.items()
    }


@pytest.fixture
def head(tmp_path):
    """In the form of `sac+logos+ava1-l14-linearMSE.pth`: a state dict, saved as it is."""
    file = tmp_path / "sac+logos+ava1-l14-linearMSE.pth"
    torch.save(random_head(), file)
    return str(file)


@pytest.fixture
def reward(save_clip, head):
    return Aesthetic(CPU, path=str(save_clip(width=768)), head=head)


def affine(weights, embedding):
    """The five layers multiplied out by hand, in float64: `A e + b`."""
    matrix, offset = torch.eye(768, dtype=torch.float64), torch.zeros(768, dtype=torch.float64)
    for i in (0, 2, 4, 6, 7):
        weight, bias = (weights[f"layers.{i}.{kind}"].double() for kind in ("weight", "bias"))
        matrix, offset = weight @ matrix, weight @ offset + bias
    return (embedding.double() @ matrix.T + offset)[:, 0].float()


def test_the_head_is_one_affine_map_of_the_embedding():
    weights, generator = random_head(), torch.Generator().manual_seed(1)
    embedding = torch.nn.functional.normalize(torch.randn(16, 768, generator=generator))
    found = load_head(weights, "x.pth")(embedding)
    torch.testing.assert_close(found, affine(weights, embedding), atol=1e-5, rtol=1e-5)
    assert found.std() > 0.05


def test_a_rating_by_hand():
    """Weights that are 1 on the first coordinate: 0.25 goes through, each layer adds its bias."""
    weights = {name: torch.zeros_like(value) for name, value in random_head().items()}
    for bias, i in enumerate((0, 2, 4, 6, 7), start=1):
        weights[f"layers.{i}.weight"][0, 0] = 1
        weights[f"layers.{i}.bias"][0] = bias
    embedding = torch.zeros(2, 768)
    embedding[0, 0], embedding[1, 0] = 0.25, -100.0  # an activation would stop the second
    assert load_head(weights, "x.pth")(embedding).tolist() == [15.25, -85.0]


def test_scores_are_the_heads_of_embeddings_of_unit_length(reward, drawn):
    samples = drawn(PROMPTS)
    scores = reward.score(samples)
    check_scores(reward, scores, 3)
    embedding = reward.clip.embed_images(samples.images)
    torch.testing.assert_close(embedding.norm(dim=1), torch.ones(3))
    expected = affine(random_head(), embedding)
    torch.testing.assert_close(scores["aesthetic"], expected, atol=1e-5, rtol=1e-5)
    assert scores["aesthetic"].std() > 1e-3


def test_prompts_play_no_part_and_nothing_is_left_to_chance(reward, drawn):
    samples, others = drawn(PROMPTS), drawn(["x", "y", "z"])
    first = reward.score(samples)["aesthetic"]
    reward.head.train()  # not even then: the head has no dropout
    assert torch.equal(reward.score(others)["aesthetic"], first)


def test_safetensors_and_half_precision_of_the_head(save_clip, tmp_path, drawn, head):
    path, samples = str(save_clip(width=768)), drawn(PROMPTS)
    expected = Aesthetic(CPU, path=path, head=head).score(samples)["aesthetic"]
    save_file(random_head(), tmp_path / "x.safetensors")
    found = Aesthetic(CPU, path=path, head=str(tmp_path / "x.safetensors"))
    assert torch.equal(found.score(samples)["aesthetic"], expected)
    torch.save({k: v.half() for k, v in random_head().items()}, tmp_path / "half.pth")
    found = Aesthetic(CPU, path=path, head=str(tmp_path / "half.pth"))
    torch.testing.assert_close(found.score(samples)["aesthetic"], expected, atol=1e-2, rtol=1e-2)


def test_the_published_names_and_shapes_load_strictly():
    shapes = json.loads(PUBLISHED.read_text())
    weights = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    head = load_head(weights, "x.pth")
    assert {name: [*value.shape] for name, value in head.state_dict().items()} == shapes
    assert not head.training
    assert (WIDTH, *INNER) == (768, 1024, 128, 64, 16, 1)


def test_a_clip_of_another_width(save_clip, head):
    with pytest.raises(RewardError, match=r"^reward\.path=\S+ has .* 8 numbers.*reads 768"):
        Aesthetic(CPU, path=str(save_clip()), head=head)


def test_another_head(save_clip, tmp_path):
    weights = random_head()
    weights["layers.0.weight"] = torch.zeros(1024, 512)
    torch.save(weights, tmp_path / "x.pth")
    message = r"^reward\.head=\S+ is no head of LAION.*layers\.0\.weight is \[1024, 512\] in place"
    with pytest.raises(RewardError, match=message):
        Aesthetic(CPU, path=str(save_clip(width=768)), head=str(tmp_path / "x.pth"))


def test_no_head(save_clip):
    with pytest.raises(RewardError, match=r"^reward\.head=/nonesuch\.pth: .*type reward\.head="):
        Aesthetic(CPU, path=str(save_clip(width=768)), head="/nonesuch.pth")
