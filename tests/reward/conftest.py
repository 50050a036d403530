"""Small networks of the real classes, with random weights, saved as anyone would save theirs."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedTokenizerFast,
)

from rlfactory.reward.base import Samples

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
    """Samples of completions, and of prompts and metadata if there are."""

    def make(texts: list[str], prompts: list[str] | None = None, metadata=None) -> Samples:
        return Samples(
            prompts or [""] * len(texts),
            metadata or [{}] * len(texts),
            torch.arange(len(texts)),
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
