"""Tokenizers in which every word of the grammar is one token, and small text encoders for them."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.trainers import BpeTrainer
from torch import Tensor
from transformers import (
    CLIPTextConfig,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    PreTrainedTokenizerBase,
    T5Config,
    T5EncoderModel,
    T5TokenizerFast,
)

from rlfactory.prompts.ops.scenes import vocabulary

TEXT_LENGTH = 16
WIDTH = 128  # of T5, and of the transformers of images


def clip_tokenizer(folder: Path, words: Sequence[str] | None = None) -> CLIPTokenizer:
    """A CLIP tokenizer in which every word is one token; None: the words of the grammar.

    Kept in `folder`: ids of equally frequent pairs differ from process to process, and a training
    that goes on after a stop needs those that it began with.
    """
    words, kept = vocabulary() if words is None else words, folder / "clip_tokenizer.json"
    if not kept.exists():
        specials = ["<|startoftext|>", "<|endoftext|>"]
        trained = Tokenizer(BPE(end_of_word_suffix="</w>"))
        trained.pre_tokenizer = Whitespace()
        trainer = BpeTrainer(vocab_size=4096, special_tokens=specials, end_of_word_suffix="</w>")
        trained.train_from_iterator(words, trainer)
        kept.write_text(trained.to_str(), encoding="utf-8")
    model = json.loads(kept.read_text(encoding="utf-8"))["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = CLIPTokenizer(vocab=model["vocab"], merges=merges, model_max_length=TEXT_LENGTH)
    assert all(len(tokenizer(word).input_ids) == 3 for word in words)
    return tokenizer


def t5_tokenizer(words: Sequence[str] | None = None) -> T5TokenizerFast:
    """A T5 tokenizer in which every word (None: of the grammar) is one token, and any other is
    spelled out.
    """
    letters = [(c, -8.0) for c in "abcdefghijklmnopqrstuvwxyz"]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -20.0), ("▁", -4.0), *letters]
    pieces += [(f"▁{word}", -2.0) for word in (vocabulary() if words is None else words)]
    return T5TokenizerFast(vocab=pieces, extra_ids=0, model_max_length=TEXT_LENGTH)


def clip_encoder(tokenizer: CLIPTokenizer, width: int = WIDTH // 2) -> CLIPTextModelWithProjection:
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        projection_dim=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=TEXT_LENGTH,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return CLIPTextModelWithProjection(config)


def t5_encoder(tokenizer: T5TokenizerFast, width: int = WIDTH) -> T5EncoderModel:
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=width,
        d_kv=32,
        d_ff=2 * width,
        num_layers=2,
        num_heads=width // 32,
        dropout_rate=0.0,
    )
    return T5EncoderModel(config)


def tokenized(
    tokenizers: Sequence[PreTrainedTokenizerBase], captions: list[str]
) -> tuple[Tensor, ...]:
    """Token ids `[N, TEXT_LENGTH]` by each tokenizer."""
    options = {
        "padding": "max_length",
        "max_length": TEXT_LENGTH,
        "truncation": True,
        "return_tensors": "pt",
    }
    return tuple(tokenizer(captions, **options).input_ids for tokenizer in tokenizers)
