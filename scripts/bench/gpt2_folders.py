"""Creates what a PPO run on a GPT-2 needs, with random weights: policy, two scorers, prompts.

    python scripts/bench/gpt2_folders.py FOLDER --size gpt2

Tokens are single characters, so that decoding and encoding again gives the same tokens.
"""

import argparse
import random
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import (
    AutoTokenizer,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

END = "<|endoftext|>"
FIRST = 0x10000  # the first character; some below it are not allowed in text
SHAPES = {
    "tiny_gpt2": {
        "n_layer": 4,
        "n_embd": 256,
        "n_head": 4,
        "vocab_size": 4096,
        "n_positions": 256,
        "activation_function": "gelu_pytorch_tanh",
    },
    "gpt2": {},
}


def tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer of single characters and an end-of-text token."""
    words = {END: 0} | {chr(FIRST + i): i for i in range(1, vocabulary)}
    made = Tokenizer(WordLevel(words, unk_token=END))
    made.pre_tokenizer = Split(Regex("."), "isolated")
    made.decoder = Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=END, eos_token=END)


def random_policy(folder: Path, size: str) -> None:
    """Write a GPT-2 of that size and its tokenizer."""
    config = GPT2Config(**SHAPES[size], bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer(config.vocab_size).save_pretrained(folder)


def scorer(policy: str, folder: Path) -> None:
    """Write the policy's network with a new scalar head."""
    words = AutoTokenizer.from_pretrained(policy)
    network = GPT2ForSequenceClassification.from_pretrained(policy, num_labels=1)
    network.config.pad_token_id = words.pad_token_id or words.eos_token_id
    network.save_pretrained(folder)
    words.save_pretrained(folder)


def prompts(policy: str, count: int, length: int) -> str:
    """`count` lines of `length` random tokens each."""
    words, draw = AutoTokenizer.from_pretrained(policy), random.Random(0)
    lines: list[str] = []
    while len(lines) < count:
        ids = [draw.randrange(2, len(words)) for _ in range(length)]
        line = words.decode(ids).strip()
        if words(line).input_ids == ids:
            lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SHAPES, default="tiny_gpt2")
    parser.add_argument("--policy", help="a folder with weights, instead of random ones")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--length", type=int, default=8, help="tokens of a prompt")
    a = parser.parse_args()
    torch.manual_seed(0)
    a.folder.mkdir(parents=True, exist_ok=True)
    if a.policy is None:
        random_policy(a.folder / "policy", a.size)
    policy = a.policy or str(a.folder / "policy")
    for name in ("reward", "value"):
        scorer(policy, a.folder / name)
    (a.folder / "prompts.txt").write_text(prompts(policy, a.prompts, a.length), encoding="utf-8")


if __name__ == "__main__":
    main()
