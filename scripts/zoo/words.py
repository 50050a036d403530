"""Tokenizers in which every word of the grammar is one token, and small text encoders for them."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

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


def clip_tokenizer(words: Sequence[str] | None = None) -> CLIPTokenizer:
    """A CLIP tokenizer in which every word is one token; None: the words of the grammar.

    Ids are those of byte pair encoding, ties in the order of the alphabet: the trainer of
    `tokenizers` numbers equally frequent pairs differently in each process.
    """
    words = vocabulary() if words is None else words
    parts = [[*word[:-1], f"{word[-1]}</w>"] for word in words]
    letters, merges = sorted({*"".join(words)}), []
    while counts := Counter(pair for word in parts for pair in pairwise(word)):
        merges.append(min(counts, key=lambda pair: (-counts[pair], pair)))
        parts = [_merged(word, *merges[-1]) for word in parts]
    tokens = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{c}</w>" for c in letters)]
    tokens += [a + b for a, b in merges]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=TEXT_LENGTH)
    assert all(len(tokenizer(word).input_ids) == 3 for word in words)
    return tokenizer


def _merged(word: Sequence[str], first: str, second: str) -> list[str]:
    """The parts of a word, each `first` that `second` follows joined to it."""
    parts: list[str] = []
    for part in word:
        if part == second and parts and parts[-1] == first:
            parts[-1] += part
        else:
            parts.append(part)
    return parts


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
