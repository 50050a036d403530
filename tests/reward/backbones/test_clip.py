import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize
from transformers import AutoTokenizer, CLIPImageProcessorPil, CLIPModel

from rlfactory.reward.backbones.clip import clip_preprocessing, load_clip
from rlfactory.reward.base import RewardError

CPU = torch.device("cpu")
PROMPTS = ["a red cat", "two dogs, a bird", "a red cat", "x"]
# github.com/openai/CLIP, clip.py: Normalize
MEAN = np.array([0.48145466, 0.4578275, 0.40821073])
STD = np.array([0.26862954, 0.26130258, 0.27577711])


def load(folder, **options):
    return load_clip(str(folder), CPU, **{"dtype": "float32", "batch_size": 3, **options})


def by_hand(image, method=Image.Resampling.BICUBIC):
    """CLIP's preprocessing of one picture `[3, H, W]`, with Pillow and numpy alone."""
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    width, height = picture.size
    short = min(width, height)
    wide, high = (int(224 * side / short) for side in (width, height))
    picture = picture.resize((wide, high), method)
    left, top = (wide - 224) // 2, (high - 224) // 2
    pixels = np.asarray(picture.crop((left, top, left + 224, top + 224))) / 255
    return ((pixels - MEAN) / STD).transpose(2, 0, 1)


@pytest.mark.parametrize("size", [(512, 512), (300, 500), (500, 301), (64, 64), (224, 224)])
@pytest.mark.parametrize("resample", ["bicubic", "bilinear"])
def test_preprocessing_is_clips(drawn, size, resample):
    images = drawn(["a", "b"], *size).images
    generator = torch.Generator().manual_seed(1)
    # fine detail, which antialias must blur
    noise = torch.randint(40, images.shape, generator=generator)
    images = (images.int() + noise).clamp(max=255).to(torch.uint8)
    found = clip_preprocessing(CLIPImageProcessorPil(), resample)(images)
    method = Image.Resampling.BICUBIC if resample == "bicubic" else Image.Resampling.BILINEAR
    expected = np.stack([by_hand(image, method) for image in images])
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("size", [(511, 333), (320, 330), (343, 637), (570, 380)])
def test_pixels_are_cropped_as_bytes(size):
    """Of ramps, whose values are places: also where 224 / 320 * 330 is less than 231."""
    ramps = [torch.linspace(0, 255, edge).round().to(torch.uint8) for edge in size]
    image = torch.stack([*torch.meshgrid(*ramps, indexing="ij"), torch.zeros(size)])[None]
    prepare = clip_preprocessing(CLIPImageProcessorPil())
    found, expected = prepare(image / 255), prepare(image.to(torch.uint8))
    assert (found - expected).mean((2, 3)).abs().max() < 5e-4


def test_preprocessing_comes_with_the_model(save_clip, drawn):
    """OpenAI's own file says `"size": 224`, which is the shorter side."""
    folder = save_clip()
    wide = drawn(["a"], 200, 300).images
    plain = load(folder).pixels(wide)
    file = folder / "preprocessor_config.json"
    mean, std = MEAN.tolist(), STD.tolist()
    old = '{"crop_size": 224, "do_center_crop": true, "do_normalize": true, "do_resize": true,'
    old += f'"feature_extractor_type": "CLIPFeatureExtractor", "image_mean": {mean},'
    file.write_text(f'{old} "image_std": {std}, "resample": 3, "size": 224}}')
    assert torch.equal(load(folder).pixels(wide), plain)
    file.write_text(f'{old} "image_std": {[2 * s for s in std]}, "resample": 3, "size": 224}}')
    torch.testing.assert_close(load(folder).pixels(wide), plain / 2)


@torch.no_grad()
def test_cosines_are_those_of_transformers(save_clip, drawn):
    folder, samples = save_clip(), drawn(PROMPTS)
    model, tokenizer = (
        CLIPModel.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    pixels = clip_preprocessing(CLIPImageProcessorPil())(samples.images)
    logits = model(**tokenizer(PROMPTS, padding=True, return_tensors="pt"), pixel_values=pixels)
    found = load(folder).cosines(samples.images, PROMPTS)
    expected = logits.logits_per_image.diagonal() / model.logit_scale.exp()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert found.std() > 0.01
    assert not found.requires_grad


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_batches_change_nothing(save_clip, drawn, batch_size):
    samples, folder = drawn(PROMPTS), save_clip()
    found = load(folder, batch_size=batch_size).cosines(samples.images, PROMPTS)
    expected = load(folder).cosines(samples.images, PROMPTS)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_embeddings_have_unit_length(save_clip, drawn):
    clip = load(save_clip())
    for found in (clip.embed_images(drawn(PROMPTS).images), clip.embed_texts(PROMPTS)):
        assert found.shape == (4, 8)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.norm(dim=1), torch.ones(4))


def test_equal_prompts_are_computed_once(save_clip, monkeypatch):
    clip = load(save_clip(), batch_size=2)
    seen = []
    batch = clip._text_batch
    monkeypatch.setattr(clip, "_text_batch", lambda texts: (seen.append(texts), batch(texts))[1])
    found = clip.embed_texts(["a", "b", "a", "a", "c", "b"])
    assert seen == [["a", "b"], ["c"]]
    assert torch.equal(found[[0, 1]], found[[3, 5]])
    assert not torch.allclose(found[0], found[1])


def test_long_prompts_lose_their_end(save_clip):
    clip = load(save_clip())
    letters = ["a"] * 75  # between the start and the end of text: 77
    kept, cut = " ".join(letters), " ".join([*letters, "b", "c"])
    found = clip.embed_texts([kept, cut, " ".join([*letters[1:], "b"])])
    torch.testing.assert_close(found[0], found[1])
    assert not torch.allclose(found[0], found[2], atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(save_clip, drawn, dtype):
    folder, images = save_clip(logit_scale=4.6052), drawn(PROMPTS).images
    half = load(folder, dtype=dtype)
    assert next(half.model.parameters()).dtype == getattr(torch, dtype)
    found = half.cosines(images, PROMPTS)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, load(folder).cosines(images, PROMPTS), atol=0.05, rtol=0)
    assert half.logit_scale == pytest.approx(np.exp(4.6052), rel=1e-6)


def test_what_half_precision_cannot_hold_is_no_score_and_said(save_clip, drawn, caplog):
    folder, samples = save_clip(), drawn(PROMPTS)
    model = CLIPModel.from_pretrained(folder)
    model.vision_model.post_layernorm.bias.data.fill_(1e6)
    model.save_pretrained(folder)
    assert load(folder).cosines(samples.images, PROMPTS).isfinite().all()
    caplog.clear()
    assert load(folder, dtype="float16").cosines(samples.images, PROMPTS).isnan().all()
    assert "4 images overflow torch.float16" in caplog.text


def test_a_clip_for_pictures_alone_lets_its_text_tower_go(save_clip, drawn):
    folder, images = save_clip(), drawn(PROMPTS).images
    clip = load(folder, reads_prompts=False)
    assert not any(name.startswith("text") for name, _ in clip.model.named_parameters())
    assert torch.equal(clip.embed_images(images), load(folder).embed_images(images))
    with pytest.raises(TypeError, match="images alone"):
        clip.embed_texts(["a"])


def test_the_network_is_frozen_and_in_evaluation(save_clip):
    model = load(save_clip()).model
    assert not model.training
    assert not any(weight.requires_grad for weight in model.parameters())


def test_nothing_to_score(save_clip, drawn):
    clip = load(save_clip())
    assert clip.cosines(drawn(["a"]).images[:0], []).shape == (0,)


@pytest.mark.parametrize("act", ["gelu", "quick_gelu"])
@torch.no_grad()
def test_the_activation_is_that_of_the_configuration(save_clip, small_clip, drawn, act):
    clip, images = load(save_clip(act=act)), drawn(PROMPTS).images
    pixels = clip_preprocessing(CLIPImageProcessorPil())(images)
    own, other = (
        normalize(small_clip(act=name).get_image_features(pixel_values=pixels).pooler_output)
        for name in (act, {"gelu": "quick_gelu", "quick_gelu": "gelu"}[act])
    )
    torch.testing.assert_close(clip.embed_images(images), own, atol=1e-5, rtol=1e-4)
    assert (own - other).abs().max() > 1e-3


def test_loading_says_nothing(save_clip, drawn, capfd):
    folder, samples = save_clip(), drawn(PROMPTS)
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(folder).cosines(samples.images, PROMPTS)
    assert capfd.readouterr() == ("", "")


def without(name):
    return lambda folder: [file.unlink() for file in folder.glob(name)]


def torn(folder):
    (folder / "model.safetensors").write_bytes(b"torn")


def without_projection(folder):
    model = CLIPModel.from_pretrained(folder)
    weights = model.state_dict()
    del weights["visual_projection.weight"]
    model.save_pretrained(folder, state_dict=weights)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (without("config.json"), "a CLIP: .* no config.json"),
        (without("model.safetensors"), ""),
        (torn, ""),
        (without("preprocessor_config.json"), "preprocessing: .* no preprocessor_config.json"),
        (without("tokenizer*"), "tokenizer: .* no tokenizer_config.json"),
        (without("tokenizer.json"), "tokenizer: its tokenizer is missing"),
        (without_projection, r"a CLIP: it has no weights for visual_projection\.weight"),
    ],
)
def test_a_folder_that_is_no_whole_clip(save_clip, harm, message):
    folder = save_clip()
    harm(folder)
    with pytest.raises(RewardError, match=rf"^reward\.path={folder} could not .*{message}"):
        load(folder)


def test_the_processor_may_lie_elsewhere(save_clip, drawn):
    whole, bare = save_clip("whole"), save_clip("bare")
    expected = load(whole).cosines(drawn(PROMPTS).images, PROMPTS)
    without("tokenizer*")(bare)
    without("preprocessor_config.json")(bare)
    found = load(bare, processor=str(whole)).cosines(drawn(PROMPTS).images, PROMPTS)
    assert torch.equal(found, expected)
    with pytest.raises(RewardError, match=r"^reward\.processor=/nonesuch .*no folder"):
        load(whole, processor="/nonesuch")


@pytest.mark.parametrize("path", ["zoo:nonesuch", "./nonesuch", "/nonesuch"])
def test_a_path_that_leads_nowhere(path):
    with pytest.raises(RewardError, match=rf"^reward\.path={path} could not"):
        load(path)
