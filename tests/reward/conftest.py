"""Small classifiers of texts, with random weights, saved as anyone would save theirs."""

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
