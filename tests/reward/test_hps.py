import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import gelu, layer_norm, multi_head_attention_forward
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

from rlfactory.reward import hps
from rlfactory.reward.backbones import pretrained
from rlfactory.reward.backbones.clip import clip_preprocessing
from rlfactory.reward.base import RewardError, check_scores
from rlfactory.reward.hps import HPS, VIT_H_14, convert, load_open_clip, resize_and_pad

CPU = torch.device("cpu")
PROMPTS = ["a cat", "a dog", "a cat", "nothing at all"]
MEAN = np.array([0.48145466, 0.4578275, 0.40821073])[:, None, None]
STD = np.array([0.26862954, 0.26130258, 0.27577711])[:, None, None]


@pytest.fixture
def small(small_clip, save_clip, tmp_path, monkeypatch):
    """A small network in the form of `HPS_v2.1_compressed.pt`, and a folder with a tokenizer."""
    model, processor = small_clip(act="gelu"), save_clip()
    file = tmp_path / "HPS_v2.1_compressed.pt"
    weights = {k: v.contiguous() for k, v in open_clip_names(model).items()}
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
    weights = open_clip_names(small_clip(act="gelu"))
    image = encode_image(weights, resize_and_pad(samples.images))
    tokens = torch.zeros(4, 77, dtype=torch.long)
    for row, prompt in zip(tokens, PROMPTS, strict=True):
        ids = reward.clip.tokenizer(prompt)["input_ids"]
        row[: len(ids)] = torch.tensor(ids)
    text = encode_text(weights, tokens)
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


@pytest.mark.parametrize("fit", ["pad", "crop"])
def test_pixels_have_the_score_of_bytes_and_a_gradient(small, drawn, fit):
    given, reward = drawn(PROMPTS, 300, 400), HPS(CPU, **small, fit=fit)
    pixels = (given.images / 255).requires_grad_()
    found = reward.score_pixels(pixels, given.prompts, given.metadata)
    tolerance = 1e-5 if fit == "pad" else 5e-3  # Pillow rounds what it resizes
    expected = reward.score(given)["hps"]
    torch.testing.assert_close(found.detach(), expected, atol=tolerance, rtol=tolerance)
    (gradient,) = torch.autograd.grad(found.sum(), pixels)
    assert (gradient.flatten(1).norm(dim=1) > 0).all()


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


PUBLISHED = Path(__file__).parent / "published"


def published(name):
    """Names and shapes of a checkpoint of full size, where `{0..3}` stands for four names."""
    found = {}
    for pattern, shape in json.loads((PUBLISHED / name).read_text()).items():
        counted = re.search(r"\{0\.\.(\d+)\}", pattern)
        for i in range(int(counted[1]) + 1 if counted else 1):
            found[pattern.replace(counted[0], str(i)) if counted else pattern] = shape
    return found


def open_clip_names(model):
    """A model's weights as open_clip saves them."""
    own, found = model.state_dict(), {}
    for tower, prefix in (("text_model", ""), ("vision_model", "visual.")):
        for i in range(2):
            layer = f"{tower}.encoder.layers.{i}."
            block = f"{prefix}transformer.resblocks.{i}."
            for kind in ("weight", "bias"):
                fused = [own[f"{layer}self_attn.{x}_proj.{kind}"] for x in ("q", "k", "v")]
                found[f"{block}attn.in_proj_{kind}"] = torch.cat(fused)
                found[f"{block}attn.out_proj.{kind}"] = own[f"{layer}self_attn.out_proj.{kind}"]
                found[f"{block}ln_1.{kind}"] = own[f"{layer}layer_norm1.{kind}"]
                found[f"{block}ln_2.{kind}"] = own[f"{layer}layer_norm2.{kind}"]
                found[f"{block}mlp.c_fc.{kind}"] = own[f"{layer}mlp.fc1.{kind}"]
                found[f"{block}mlp.c_proj.{kind}"] = own[f"{layer}mlp.fc2.{kind}"]
    for kind in ("weight", "bias"):
        found[f"ln_final.{kind}"] = own[f"text_model.final_layer_norm.{kind}"]
        found[f"visual.ln_pre.{kind}"] = own[f"vision_model.pre_layrnorm.{kind}"]
        found[f"visual.ln_post.{kind}"] = own[f"vision_model.post_layernorm.{kind}"]
    inner = "vision_model.embeddings."
    found["visual.class_embedding"] = own[f"{inner}class_embedding"]
    found["visual.conv1.weight"] = own[f"{inner}patch_embedding.weight"]
    found["visual.positional_embedding"] = own[f"{inner}position_embedding.weight"]
    found["visual.proj"] = own["visual_projection.weight"].T
    found["positional_embedding"] = own["text_model.embeddings.position_embedding.weight"]
    found["token_embedding.weight"] = own["text_model.embeddings.token_embedding.weight"]
    found["text_projection"] = own["text_projection.weight"].T
    found["logit_scale"] = own["logit_scale"]
    return found


def norm(x, w, name):
    return layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def blocks(x, w, prefix, heads, mask=None):
    """open_clip's ResidualAttentionBlocks on `[B, L, D]`, with GELU."""
    for i in range(2):
        at = f"{prefix}transformer.resblocks.{i}."
        y = norm(x, w, f"{at}ln_1").transpose(0, 1)
        weights = (w[f"{at}attn.in_proj_weight"], w[f"{at}attn.in_proj_bias"])
        out = (w[f"{at}attn.out_proj.weight"], w[f"{at}attn.out_proj.bias"])
        options = {"training": False, "need_weights": False, "attn_mask": mask}
        y, _ = multi_head_attention_forward(
            *(y, y, y), y.shape[-1], heads, *weights, None, None, False, 0.0, *out, **options
        )
        x = x + y.transpose(0, 1)
        y = norm(x, w, f"{at}ln_2") @ w[f"{at}mlp.c_fc.weight"].T + w[f"{at}mlp.c_fc.bias"]
        x = x + gelu(y) @ w[f"{at}mlp.c_proj.weight"].T + w[f"{at}mlp.c_proj.bias"]
    return x


def encode_image(w, pixels):
    x = torch.nn.functional.conv2d(pixels, w["visual.conv1.weight"], stride=56)
    x = x.flatten(2).transpose(1, 2)
    x = torch.cat([w["visual.class_embedding"].expand(len(x), 1, -1), x], 1)
    x = norm(x + w["visual.positional_embedding"], w, "visual.ln_pre")
    x = blocks(x, w, "visual.", heads=3)
    return norm(x[:, 0], w, "visual.ln_post") @ w["visual.proj"]


def encode_text(w, tokens):
    """Of tokens `[B, 77]`, padded with 0 as open_clip's tokenizer does."""
    mask = torch.full((77, 77), -torch.inf).triu(1)
    x = blocks(w["token_embedding.weight"][tokens] + w["positional_embedding"], w, "", 2, mask)
    x = norm(x, w, "ln_final")
    return x[torch.arange(len(x)), tokens.argmax(1)] @ w["text_projection"]


def same(found, expected):
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_names_map_back_to_the_same_numbers(small_clip):
    model = small_clip(act="gelu")
    same(convert(open_clip_names(model)), model.state_dict())


def test_what_parallel_training_and_older_versions_leave_is_dropped(small_clip):
    model = small_clip(act="gelu")
    named = {f"module.{name}": value for name, value in open_clip_names(model).items()}
    same(convert({**named, "module.attn_mask": torch.zeros(77, 77)}), model.state_dict())


@torch.no_grad()
def test_outputs_are_open_clips(small_clip):
    model = small_clip(act="gelu")
    weights, generator = open_clip_names(model), torch.Generator().manual_seed(1)
    pixels = torch.randn(3, 3, 224, 224, generator=generator)
    image = model.get_image_features(pixel_values=pixels).pooler_output
    torch.testing.assert_close(image, encode_image(weights, pixels), atol=2e-5, rtol=1e-4)
    end = model.config.text_config.eos_token_id
    tokens = torch.zeros(2, 77, dtype=torch.long)
    for row, length in enumerate((5, 76)):
        tokens[row, 0] = end - 1
        tokens[row, 1:length] = torch.randint(78, (length - 1,), generator=generator)
        tokens[row, length] = end
    text = model.get_text_features(input_ids=tokens).pooler_output
    torch.testing.assert_close(text, encode_text(weights, tokens), atol=2e-5, rtol=1e-4)
    quick = small_clip(act="quick_gelu").get_image_features(pixel_values=pixels).pooler_output
    assert (quick - image).abs().max() > 1e-3


def test_the_published_names_and_shapes_of_vit_h_14_load_strictly():
    names = published("vit_h_14_open_clip.json")
    assert len(names) == 14 + 12 * (32 + 24)
    weights = {name: torch.empty(shape, device="meta") for name, shape in names.items()}
    # open_clip says 986.11 million; OpenAI's ViT-L/14 has 427.62
    assert sum(value.numel() for value in weights.values()) == 986_109_441
    with torch.device("meta"):
        model = CLIPModel(CLIPConfig(**VIT_H_14))
    assert model.load_state_dict(convert(weights), strict=True, assign=True)
    heads = [
        part.num_attention_heads for part in (model.config.text_config, model.config.vision_config)
    ]
    assert heads == [16, 16]


def test_vit_h_14_has_gelu_and_openais_vit_l_14_quick_gelu():
    """quick_gelu is what transformers takes where a configuration names no activation."""
    config = CLIPConfig(**VIT_H_14)
    assert (config.text_config.hidden_act, config.vision_config.hidden_act) == ("gelu", "gelu")
    assert CLIPConfig().vision_config.hidden_act == "quick_gelu"
    assert CLIPConfig().text_config.hidden_act == "quick_gelu"


OPENAI = {
    "projection_dim": 768,
    "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
    "vision_config": {
        **{"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16},
        **{"num_hidden_layers": 24, "patch_size": 14},
    },
}


@pytest.mark.parametrize(
    ("name", "config", "count"),
    [
        ("clip_vit_large_patch14.json", OPENAI, 427_616_513),
        ("pickscore_v1.json", VIT_H_14, 986_109_441),
    ],
)
def test_the_published_names_and_shapes_in_transformers_own_words(name, config, count):
    """Those files still hold the buffers `position_ids`, which transformers passes over."""
    with torch.device("meta"):
        own = CLIPModel(CLIPConfig(**config)).state_dict()
    names = {k: v for k, v in published(name).items() if not k.endswith("position_ids")}
    assert {name: [*tensor.shape] for name, tensor in own.items()} == names
    assert sum(tensor.numel() for tensor in own.values()) == count


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda w: w.pop("ln_final.bias"), r"lacks text_model\.final_layer_norm\.bias"),
        (lambda w: w.update(extra=torch.ones(1)), "has extra besides"),
        (
            lambda w: w.update({"visual.proj": torch.ones(24, 9)}),
            r"visual_projection\.weight is \[9, 24\] in place of \[8, 24\]",
        ),
    ],
)
def test_another_models_file(small_clip, tmp_path, harm, message):
    model = small_clip(act="gelu")
    weights = {name: value.contiguous() for name, value in open_clip_names(model).items()}
    harm(weights)
    torch.save({"state_dict": weights}, tmp_path / "x.pt")
    with pytest.raises(
        RewardError,
        match=rf"^reward\.path={tmp_path}/x.pt is no ViT-H-14 of open_clip: it.*{message}",
    ):
        load_open_clip(f"{tmp_path}/x.pt", model.config.to_dict())
