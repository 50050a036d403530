"""Small networks of the real classes, with random weights, saved as anyone would save theirs."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    CLIPTokenizer,
    DebertaConfig,
    DebertaForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Mask2FormerConfig,
    Mask2FormerForUniversalSegmentation,
    Mask2FormerImageProcessorPil,
    PreTrainedTokenizerFast,
    SwinConfig,
)

from rlfactory.prompts.ops.scenes import Clause, Placed, Scene, render, requirements
from rlfactory.reward.base import Reward, Samples

WORDS = ["the", "movie", "was", "good", "bad", "great", "a", "waste", "of", "time", "##s", "!", "<"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def wordpiece() -> PreTrainedTokenizerFast:
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{k}_token": v for k, v in names.items()}
    )


def bytepair() -> CLIPTokenizer:
    """CLIP's own tokenizer, for which every letter is a word's part."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!"
    words = [*letters, *(f"{letter}</w>" for letter in letters)]
    vocabulary = {word: i for i, word in enumerate([*words, "<|startoftext|>", "<|endoftext|>"])}
    return CLIPTokenizer(vocab=vocabulary, merges=[])


@pytest.fixture
def small_clip() -> Callable[..., CLIPModel]:
    """A CLIP of a few thousand weights, which reads pictures of 224 pixels and 77 tokens."""

    def make(act: str = "quick_gelu", width: int = 8, logit_scale: float = 4.6052) -> CLIPModel:
        torch.manual_seed(0)
        tokenizer = bytepair()
        text = {
            "vocab_size": len(tokenizer),
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        }
        sizes = {"num_hidden_layers": 2, "hidden_act": act, "projection_dim": width}
        text |= {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, **sizes}
        vision = {"hidden_size": 24, "intermediate_size": 48, "num_attention_heads": 3, **sizes}
        vision |= {"image_size": 224, "patch_size": 56}
        config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=width)
        model = CLIPModel(config).eval()
        for weight in model.parameters():
            weight.data += 0.2 * torch.randn_like(weight)
        model.logit_scale.data.fill_(logit_scale)
        return model

    return make


@pytest.fixture
def save_clip(tmp_path: Path, small_clip: Callable[..., CLIPModel]) -> Callable[..., Path]:
    """Saves a small CLIP with its tokenizer and preprocessing; returns its folder."""

    def save(name: str = "clip", **options: Any) -> Path:
        folder = tmp_path / name
        small_clip(**options).save_pretrained(folder)
        bytepair().save_pretrained(folder)
        CLIPImageProcessorPil().save_pretrained(folder)
        return folder

    return save


@pytest.fixture
def drawn() -> Callable[..., Samples]:
    """Samples of smooth random pictures, one for each prompt; equal prompts are a group."""

    def make(prompts: list[str], height: int = 64, width: int = 64, seed: int = 0) -> Samples:
        generator = torch.Generator().manual_seed(seed)
        coarse = torch.rand(len(prompts), 3, 7, 5, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
        names = list(dict.fromkeys(prompts))
        return Samples(
            prompts,
            [{}] * len(prompts),
            torch.tensor([names.index(prompt) for prompt in prompts]),
            images=(255 * smooth).round().to(torch.uint8),
        )

    return make


Picture = NDArray[np.uint8]


@pytest.fixture
def red_shape() -> Callable[..., Picture]:
    """Draws a red shape on a background of a shade, from which `tint` takes green and blue."""

    def make(shade: int = 225, shape: str = "circle", tint: int = 0) -> Picture:
        return render([Placed(shape, "red", 30, 30, 12)], (shade, shade - tint, shade - tint))

    return make


@pytest.fixture
def circles_asked() -> Callable[[Sequence[Picture]], Samples]:
    """Pictures as samples of prompts that ask for one circle."""
    wanted = requirements(Scene("single_object", (Clause("circle"),)))

    def make(images: Sequence[Picture]) -> Samples:
        stacked = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
        count = len(images)
        return Samples([""] * count, [wanted] * count, torch.zeros(count), stacked)

    return make


@pytest.fixture
def save_classifier(tmp_path: Path) -> Callable[..., Path]:
    """Saves a DistilBERT with the labels that are asked for; returns its folder."""

    def save(*labels: str, bias: float = 0.0, problem_type: str | None = None) -> Path:
        torch.manual_seed(0)
        config = DistilBertConfig(
            vocab_size=len(SPECIAL) + len(WORDS),
            max_position_embeddings=24,
            dim=16,
            hidden_dim=32,
            n_layers=2,
            n_heads=2,
            initializer_range=0.4,  # with the usual 0.02 every text would score the same
            pad_token_id=0,
            id2label=dict(enumerate(labels)),
            label2id={label: i for i, label in enumerate(labels)},
            problem_type=problem_type,
        )
        model = DistilBertForSequenceClassification(config)
        model.classifier.bias.data.fill_(bias)
        folder = tmp_path / "classifier"
        model.save_pretrained(folder)
        wordpiece().save_pretrained(folder)
        return folder

    return save


@pytest.fixture
def samples_of() -> Callable[..., Samples]:
    """Samples of completions, and of prompts, metadata and groups if there are."""

    def make(
        texts: list[str], prompts: list[str] | None = None, metadata=None, groups=None
    ) -> Samples:
        return Samples(
            prompts or [""] * len(texts),
            metadata or [{}] * len(texts),
            torch.arange(len(texts)) if groups is None else torch.tensor(groups),
            texts=texts,
        )

    return make


@pytest.fixture
def bert_tokenizer() -> PreTrainedTokenizerFast:
    """Of the words that these small networks know."""
    return wordpiece()


@pytest.fixture
def blip_state() -> dict[str, torch.Tensor]:
    """A small ImageReward with random weights, named as the published file names its own: two
    layers of each kind, pictures of 32 by 32 pixels, as many words as `wordpiece` has.
    """
    torch.manual_seed(0)
    published = json.loads((Path(__file__).parent / "published" / "imagereward.json").read_text())
    words = len(SPECIAL) + len(WORDS)
    widths = {1024: 128, 3072: 384, 4096: 256, 768: 64, 30524: words}
    state = {}
    for name, shape in published.items():
        block = re.search(r"(?:blocks|layer)\.(\d+)\.", name)
        if block and int(block[1]) > 1:
            continue
        if not name.startswith("mlp.layers"):
            shape = [widths.get(size, size) for size in shape]
        if name == "mlp.layers.0.weight":
            shape = [1024, 64]
        if name.endswith("pos_embed"):
            shape[1] = 5
        fan_in = torch.Size(shape[1:]).numel()
        spread = 2 * fan_in**-0.5 if len(shape) > 1 else 0.2
        gain = re.search(r"norm\d?\.weight", name.lower()) is not None
        state[name] = torch.randn(shape) * spread + gain
    state["blip.text_encoder.embeddings.position_ids"] = torch.arange(512)[None]
    return state


ENCODER_SIZES = {
    "vocab_size": len(SPECIAL) + len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "initializer_range": 0.4,
    "pad_token_id": 0,
}


@pytest.fixture(scope="module", params=["bert", "deberta"])
def encoder(request, tmp_path_factory) -> Path:
    """A small encoder of texts, saved as those are: with the head that it was published with."""
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    if request.param == "bert":
        BertForMaskedLM(BertConfig(**ENCODER_SIZES)).save_pretrained(folder)
    else:  # with what makes deberta-xlarge-mnli one
        own = {
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_biased_input": False,
            "max_relative_positions": -1,
            "type_vocab_size": 0,
        }
        DebertaForSequenceClassification(DebertaConfig(**ENCODER_SIZES, **own)).save_pretrained(
            folder
        )
    wordpiece().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def detector_folder(tmp_path_factory):
    """A Mask2Former on a Swin, of three classes."""
    torch.manual_seed(0)
    swin = SwinConfig(
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 2, 2],
        image_size=64,
        window_size=2,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    widths = dict.fromkeys(["feature_size", "mask_feature_size", "hidden_dim"], 32)
    config = Mask2FormerConfig(
        backbone_config=swin,
        **widths,
        num_attention_heads=2,
        encoder_layers=1,
        decoder_layers=2,
        num_queries=6,
        dim_feedforward=32,
        encoder_feedforward_dim=32,
        id2label={0: "cat", 1: "dog", 2: "cow"},
    )
    folder = tmp_path_factory.mktemp("mask2former")
    Mask2FormerForUniversalSegmentation(config).save_pretrained(folder)
    Mask2FormerImageProcessorPil().save_pretrained(folder)
    return folder


@pytest.fixture
def clip_folder(tmp_path, bert_tokenizer):
    """A CLIP that reads pictures of 16 pixels, and the words of `bert_tokenizer`."""
    torch.manual_seed(1)
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    small |= {"num_attention_heads": 2, "initializer_range": 0.3}
    config = CLIPConfig(
        text_config={**small, "vocab_size": 20, "max_position_embeddings": 16, "eos_token_id": 3},
        vision_config={**small, "image_size": 16, "patch_size": 8},
        projection_dim=24,
    )
    model = CLIPModel(config)
    torch.nn.init.normal_(model.visual_projection.weight)
    torch.nn.init.normal_(model.text_projection.weight)
    model.save_pretrained(tmp_path)
    size = {"size": {"shortest_edge": 16}, "crop_size": 16}
    CLIPImageProcessorPil(**size).save_pretrained(tmp_path)
    bert_tokenizer.save_pretrained(tmp_path)
    return tmp_path


def mask(left, top, right, bottom, size=(32, 48)):
    """An object that fills a box."""
    found = torch.zeros(size, dtype=torch.bool)
    found[top:bottom, left:right] = True
    return found


def noise(count=2):
    """Pictures of the size of those masks."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, 32, 48), generator=generator).to(torch.uint8)


class Length(Reward):
    """As long as the prompt's text is, NaN where it is empty."""

    media = "texts"
    main = "length"

    def score(self, samples):
        sizes = [len(text) or torch.nan for text in samples.texts]
        return {"length": torch.tensor(sizes, dtype=torch.float32)}
