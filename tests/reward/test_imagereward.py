import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from PIL import Image
from torch import Tensor

from rlfactory.config.options import packaged_folder
from rlfactory.reward.backbones.pretrained import rating_layers
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.imagereward import ImageReward, load_blip_scorer, normalise
from rlfactory.train.build import instantiate_group

CPU = torch.device("cpu")
PROMPTS = ["a good movie", "bad movie times !", "great waste of the"]


@pytest.fixture
def folder(tmp_path, blip_state, bert_tokenizer):
    torch.save(blip_state, tmp_path / "ImageReward.pt")
    bert_tokenizer.save_pretrained(tmp_path / "tokenizer")
    return tmp_path


def load(folder, **options):
    return ImageReward(
        CPU, path=str(folder / "ImageReward.pt"), tokenizer=str(folder / "tokenizer"), **options
    )


def samples(size=(32, 32), prompts=PROMPTS):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (len(prompts), 3, *size), generator=generator)
    count = torch.arange(len(prompts))
    return Samples(prompts, [{}] * len(prompts), count, images.to(torch.uint8))


def score(reward, of) -> Tensor:
    found = reward.score(of)
    check_scores(reward, found, len(of.prompts))
    return found["imagereward"]


def test_normalisation_golden():
    """The published mean and deviation of raw scores."""
    raw = torch.tensor([0.16717362830052426, 0.16717362830052426 + 1.0333394966054072, 0.0])
    assert normalise(raw).tolist() == pytest.approx([0.0, 1.0, -0.16177996], abs=1e-6)


def test_scores_are_those_of_each_sample_alone(folder):
    of = samples()
    together = score(load(folder), of)
    in_pairs = score(load(folder, batch_size=2), of)
    torch.testing.assert_close(in_pairs, together, atol=1e-5, rtol=1e-4)
    assert together.std() > 0.01


@pytest.mark.parametrize(("width", "wide", "left"), [(80, 64, 16), (44, 35, 2), (46, 36, 2)])
def test_pictures_are_prepared_as_published(folder, width, wide, left):
    """Shorter side to 32 by Pillow's bicubic, the middle of it, CLIP's mean and deviation.

    Half a pixel from the middle torchvision's CenterCrop rounds to an even one, 1.5 to 2.
    """
    of = samples((40, width), PROMPTS[:1])
    image = Image.fromarray(of.images[0].permute(1, 2, 0).numpy())
    small = image.resize((wide, 32), Image.BICUBIC).crop((left, 0, left + 32, 32))
    middle = torch.from_numpy(np.array(small))
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073])
    deviation = torch.tensor([0.26862954, 0.26130258, 0.27577711])
    expected = ((middle / 255 - mean) / deviation).permute(2, 0, 1)
    reward = load(folder)
    seen: list[tuple[Tensor, ...]] = []

    def forward(*inputs: Tensor) -> Tensor:
        seen.append(inputs)
        return torch.zeros(1)

    reward.model.forward = forward
    score(reward, of)
    torch.testing.assert_close(seen[0][0][0], expected, atol=1e-5, rtol=0)
    assert seen[0][1].shape == (1, 35)


def test_long_prompts_lose_their_end(folder):
    reward = load(folder)
    images = samples().images[:1]
    long, cut = (
        score(reward, Samples(["good " * n], [{}], torch.tensor([0]), images)) for n in (200, 33)
    )
    assert torch.equal(long, cut)


def test_what_float16_can_not_hold_is_no_score(folder, blip_state):
    blip_state["mlp.layers.7.bias"] += torch.inf
    torch.save(blip_state, folder / "ImageReward.pt")
    assert score(load(folder), samples()).isnan().all()


class Malice:
    def __reduce__(self):
        return (print, ("it ran",))


def test_a_file_that_is_more_than_tensors_is_refused(folder, blip_state, capsys):
    (folder / "ImageReward.pt").write_bytes(pickle.dumps({"mlp": Malice()}, protocol=2))
    with pytest.raises(RewardError, match=r"ImageReward\.pt"):
        load(folder)
    torch.save(blip_state | {"x": Malice()}, folder / "ImageReward.pt")
    with pytest.raises(RewardError, match="more than tensors"):
        load(folder)
    assert "it ran" not in capsys.readouterr().out


def without_a_tensor(folder, state):
    del state["mlp.layers.0.weight"]
    torch.save(state, folder / "ImageReward.pt")


def of_something_else(folder, state):
    torch.save({"weight": torch.zeros(2)}, folder / "ImageReward.pt")


def of_no_tensors(folder, state):
    torch.save([1, 2], folder / "ImageReward.pt")


def torn(folder, state):
    (folder / "ImageReward.pt").write_bytes(b"torn")


def without_a_file(folder, state):
    (folder / "ImageReward.pt").unlink()


def without_a_tokenizer(folder, state):
    for file in (folder / "tokenizer").iterdir():
        file.unlink()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (without_a_tensor, r"is no ImageReward: .*mlp\.0\.weight"),
        (of_something_else, "is no ImageReward"),
        (of_no_tensors, "no tensors by name"),
        (torn, r"ImageReward\.pt"),
        (without_a_file, r"there is no such file"),
        (without_a_tokenizer, r"^reward\.tokenizer="),
    ],
)
def test_what_can_not_be_loaded(folder, blip_state, harm, message):
    harm(folder, blip_state)
    with pytest.raises(RewardError, match=f"(?s){message}"):
        load(folder)


def test_a_path_that_leads_nowhere():
    with pytest.raises(RewardError, match=r"^reward\.path=/nonesuch: there is no such file"):
        ImageReward(CPU, path="/nonesuch")


def test_the_option_is_built(folder):
    file = packaged_folder("conf") / "reward" / "imagereward.yaml"
    config = yaml.safe_load(file.read_text())
    config["reward"] |= {
        "path": str(folder / "ImageReward.pt"),
        "tokenizer": str(folder / "tokenizer"),
    }
    assert instantiate_group(config, "reward", device=CPU).device == CPU


def test_layers_are_named_and_shaped_as_published():
    found = {name: tuple(t.shape) for name, t in rating_layers(768).state_dict().items()}
    sizes = {"0": (1024, 768), "2": (128, 1024), "4": (64, 128), "6": (16, 64), "7": (1, 16)}
    weights = {f"{name}.weight": shape for name, shape in sizes.items()}
    assert found == weights | {f"{name}.bias": shape[:1] for name, shape in sizes.items()}


def test_together_they_are_one_affine_map():
    layers, x = rating_layers(8).double(), torch.randn(3, 8).double()
    with torch.no_grad():
        torch.testing.assert_close(
            layers(x[:1] + x[1:2] - x[2:]),
            layers(x).T @ torch.tensor([[1.0], [1.0], [-1.0]], dtype=torch.float64),
        )


PUBLISHED = json.loads((Path(__file__).parent / "published" / "imagereward.json").read_text())
"""Names and shapes of ImageReward.pt: BLIP-large of pictures, BERT-base with cross-attention to
pictures, and the head; worked out from the published configuration. 446,666,465 numbers, of 4 bytes
each: the published file has 1.79 GB.
"""
V, T = "blip.visual_encoder.", "blip.text_encoder."


def linear(state, name, x):
    return F.linear(x, state[name + ".weight"], state[name + ".bias"])


def norm(state, name, x, eps):
    return F.layer_norm(x, x.shape[-1:], state[name + ".weight"], state[name + ".bias"], eps)


def heads(x):
    return x.unflatten(-1, (-1, 64)).transpose(1, 2)


def attend(q, k, v, bias=0.0):
    scores = heads(q) @ heads(k).transpose(-1, -2) / 8 + bias
    return (scores.softmax(-1) @ heads(v)).transpose(1, 2).flatten(2)


def see(state, pixels):
    """BLIP's vision transformer, as in its `vit.py`."""
    weight, bias = state[V + "patch_embed.proj.weight"], state[V + "patch_embed.proj.bias"]
    x = F.conv2d(pixels, weight, bias, stride=weight.shape[-1]).flatten(2).transpose(1, 2)
    x = torch.cat([state[V + "cls_token"].expand(len(x), -1, -1), x], 1) + state[V + "pos_embed"]
    for i in range(2):
        block = f"{V}blocks.{i}."
        q, k, v = linear(state, block + "attn.qkv", norm(state, block + "norm1", x, 1e-6)).chunk(
            3, -1
        )
        x = x + linear(state, block + "attn.proj", attend(q, k, v))
        hidden = F.gelu(linear(state, block + "mlp.fc1", norm(state, block + "norm2", x, 1e-6)))
        x = x + linear(state, block + "mlp.fc2", hidden)
    return norm(state, V + "norm", x, 1e-6)


def read(state, tokens, mask, seen):
    """BLIP's text encoder that looks at a picture, as in its `med.py`."""
    embeddings = T + "embeddings."
    places = state[embeddings + "position_embeddings.weight"][: tokens.shape[1]]
    x = state[embeddings + "word_embeddings.weight"][tokens] + places
    x = norm(state, embeddings + "LayerNorm", x, 1e-12)
    bias = (1 - mask[:, None, None].float()) * -1e9
    for i in range(2):
        layer = f"{T}encoder.layer.{i}."
        for part, source, away in (("attention", None, bias), ("crossattention", seen, 0.0)):
            name = layer + part
            source = x if source is None else source
            q, (k, v) = (
                linear(state, name + ".self.query", x),
                (linear(state, f"{name}.self.{which}", source) for which in ("key", "value")),
            )
            out = linear(state, name + ".output.dense", attend(q, k, v, away))
            x = norm(state, name + ".output.LayerNorm", x + out, 1e-12)
        hidden = F.gelu(linear(state, layer + "intermediate.dense", x))
        out = linear(state, layer + "output.dense", hidden)
        x = norm(state, layer + "output.LayerNorm", x + out, 1e-12)
    return x


def inputs():
    torch.manual_seed(1)
    tokens = torch.tensor([[2, 5, 6, 3, 0, 0], [2, 7, 8, 9, 10, 3]])
    return torch.randn(2, 3, 32, 32), tokens, (tokens > 0).long()


def test_a_small_model_in_the_published_format_computes_what_blip_does(blip_state):
    rater = load_blip_scorer(blip_state, torch.float32)
    pixels, tokens, mask = inputs()
    found = rater(pixels, tokens, mask)
    x = read(blip_state, tokens, mask, see(blip_state, pixels))[:, 0]
    for i in (0, 2, 4, 6, 7):
        x = linear(blip_state, f"mlp.layers.{i}", x)
    torch.testing.assert_close(found, x[:, 0], atol=1e-5, rtol=1e-4)
    assert (found[0] - found[1]).abs() > 1e-3
    assert not rater.training
    assert not found.requires_grad


def test_text_and_picture_both_count(blip_state):
    rater = load_blip_scorer(blip_state, torch.float32)
    pixels, tokens, mask = inputs()
    found = rater(pixels, tokens, mask)
    assert (rater(pixels.flip(0), tokens, mask) - found).abs().min() > 1e-3
    assert (rater(pixels, tokens.roll(1, 1), mask) - found).abs().min() > 1e-3
    hidden = tokens.clone()
    hidden[0, 4:] = 9
    torch.testing.assert_close(rater(pixels, hidden, mask), found)


def test_the_head_stays_in_float32(blip_state):
    rater = load_blip_scorer(blip_state, torch.bfloat16)
    found = rater(*inputs())
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert rater.vision.dtype == rater.text.dtype == torch.bfloat16
    assert torch.equal(rater.mlp[-1].weight, blip_state["mlp.layers.7.weight"])


def test_the_published_names_and_shapes_load():
    state = {name: torch.empty(shape, device="meta") for name, shape in PUBLISHED.items()}
    rater = load_blip_scorer(state, torch.float32)
    assert rater.vision.config.num_hidden_layers == 24
    assert rater.vision.config.num_attention_heads == 16
    assert rater.vision.config.image_size == 224
    assert rater.text.config.num_attention_heads == 12
    passed_over = {"blip.vision_proj", "blip.text_proj"}
    scoring = {n: s for n, s in PUBLISHED.items() if n.rpartition(".")[0] not in passed_over}
    del scoring[T + "embeddings.position_ids"]
    assert sum(p.numel() for p in rater.parameters()) == sum(
        torch.Size(shape).numel() for shape in scoring.values()
    )


@pytest.mark.parametrize("name", [V + "norm.bias", T + "encoder.layer.1.output.dense.bias"])
def test_a_tensor_that_is_missing_or_is_one_too_many(blip_state, name):
    tensor = blip_state.pop(name)
    with pytest.raises(RuntimeError, match="Missing"):
        load_blip_scorer(blip_state, torch.float32)
    with pytest.raises(RuntimeError, match="Unexpected"):
        load_blip_scorer({**blip_state, name: tensor, name + "_": tensor}, torch.float32)


def test_older_files_hold_a_buffer_and_newer_ones_do_not(blip_state):
    load_blip_scorer(blip_state, torch.float32)
    del blip_state[T + "embeddings.position_ids"]
    load_blip_scorer(blip_state, torch.float32)


def test_pixels_have_nearly_the_score_of_bytes_and_a_gradient(folder, drawn):
    reward, given = load(folder), drawn(PROMPTS, 40, 40)
    pixels = (given.images / 255).requires_grad_()
    found = reward.score_pixels(pixels, given.prompts, given.metadata)
    expected = reward.score(given)["imagereward"]
    torch.testing.assert_close(found.detach(), expected, atol=2e-2, rtol=2e-2)
    (gradient,) = torch.autograd.grad(found.sum(), pixels)
    assert (gradient.flatten(1).norm(dim=1) > 0).all()
