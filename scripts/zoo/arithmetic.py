"""Trains `zoo:arithmetic`: a small GPT-2 that can add and subtract, and seldom does so rightly.

    python scripts/zoo/arithmetic.py   # again: resumes after a stop

First it reads problems of `prompts=arithmetic` with right answers, then the same problems as
careless writers answer them: one answer in ten is right. A sample is then seldom right, and RL with
a verifier has to find the right answer among likelier mistakes. Held-out problems are never read.
Deterministic given the seed and the number of threads.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from muon import Pair
from randomwalks import letter_tokenizer
from torch import Tensor, nn
from training import Progress, batches, step_optimizer
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from rlfactory.prompts.arithmetic import Arithmetic
from rlfactory.prompts.base import Prompt

CHARACTERS = "0123456789+-*="
LENGTH = 12  # an end, the longest problem `99+99=`, its answer of three characters, an end
RIGHT = 0.1  # the share of right answers of careless writers
OUT = Path(__file__).parents[2] / "src" / "rlfactory" / "model" / "zoo" / "weights" / "arithmetic"


def other_operation(text: str) -> str:
    """The difference where a problem asks for the sum, and the reverse."""
    a, b = map(int, text.removesuffix("=").replace("-", "+").split("+"))
    return str(a - b if "+" in text else a + b)


def answer_by(prompt: Prompt, right: float, rng: np.random.Generator) -> str:
    """The right answer with the probability `right`; else the other operation's, or a guess."""
    answer: str = prompt.metadata["answer"]
    kind, guess = rng.random(), str(rng.integers(-99, 199))
    if kind < right:
        return answer
    mistake = other_operation(prompt.text) if kind < (1 + right) / 2 else guess
    return guess if mistake == answer else mistake


def rows(prompts: list[Prompt], right: float, copies: int, seed: int) -> Tensor:
    """Token ids `[copies * N, LENGTH]`: an end, a problem, an answer, ends."""
    rng = np.random.default_rng([seed, copies])
    texts = [p.text + answer_by(p, right, rng) for p in prompts for _ in range(copies)]
    index = {character: i for i, character in enumerate(CHARACTERS, start=1)}
    ids = np.zeros((len(texts), LENGTH), np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[1 : len(text) + 1] = [index[character] for character in text]
    return torch.from_numpy(ids)


def build_model(seed: int) -> GPT2LMHeadModel:
    """The untrained model."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(CHARACTERS) + 1,
        n_positions=32,
        n_embd=128,
        n_layer=4,
        n_head=4,
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def answer_loss(model: GPT2LMHeadModel, batch: Tensor) -> Tensor:
    """Mean cross-entropy in nats of the answers' tokens and the ends after them, `[B, LENGTH]`.

    A problem is no text to learn: its numbers are random.
    """
    equals = (batch == CHARACTERS.index("=") + 1).cumsum(1).bool()
    after_end = ((batch == 0) & equals).cumsum(1) > 1
    targets = batch.masked_fill(after_end, -100)[:, 1:].masked_fill(~equals[:, :-1], -100)
    logits = model(batch[:, :-1], use_cache=False).logits
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(
    model: GPT2LMHeadModel, data: Tensor, steps: int, lr: float, args: argparse.Namespace, name: str
) -> None:
    """Muon and AdamW, with a linear decay of the rate over the last half; keeps the EMA weights."""
    parts = nn.ModuleDict({"model": model})
    optimizer = Pair(model.transformer.h, parts, rest_lr=3e-3)
    progress = Progress(args.work / f"{name}.pt", parts, optimizer, decay=0.99)
    done = range(progress.step, steps)
    for step, index, _ in batches(len(data), args.batch, done, args.seed):
        loss = answer_loss(model, data[index])
        rate = min(1.0, (step + 1) / 50, (steps - step) / (0.5 * steps))
        step_optimizer(optimizer, loss, lr * rate)
        progress.advance(step, steps, loss)
    progress.use_average()


@torch.inference_mode()
def exact(model: GPT2LMHeadModel, prompts: list[Prompt], *, greedy: bool) -> float:
    """The share of right answers, one to a problem, at temperature 1 or by the likeliest tokens."""
    right = 0
    for length in sorted({len(p.text) for p in prompts}):
        part = [p for p in prompts if len(p.text) == length]
        ids = rows(part, 1.0, 1, 0)
        given = ids[:, : length + 1]
        drawn = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            do_sample=not greedy,
            temperature=1.0,
            max_new_tokens=LENGTH - length - 1,
            pad_token_id=0,
        )
        width = drawn.shape[1]
        right += int((drawn == ids[:, :width]).all(1).sum())
    return right / len(prompts)


def write_card(out: Path, args: argparse.Namespace, kept: int, held: list[Prompt]) -> None:
    """Write a README: what the model is, how it was trained, how often it is right."""
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    torch.manual_seed(args.seed)
    drawn, likeliest = (exact(model, held, greedy=greedy) for greedy in (False, True))
    size = sum(p.numel() for p in model.parameters())
    lines = [
        "# arithmetic",
        "",
        f"A `GPT2LMHeadModel` (4 layers, width 128, 4 heads, {size:,} parameters, tied embeddings)",
        "with a token for each character, trained from nothing by `scripts/zoo/arithmetic.py` on",
        f"the {kept:,} problems of `prompts=arithmetic` that are not held out. float16 on disk.",
        "",
        f"Made with: seed {args.seed}, {args.batch} problems a step, {args.steps:,} steps on right",
        f"answers, then {args.careless:,} on those of careless writers, of which {RIGHT:.0%} are",
        "right. Of the others half are those of the other operation, and half guesses.",
        "",
        f"On the {len(held):,} held-out problems {drawn:.1%} of sampled answers are right",
        f"(temperature 1), and {likeliest:.1%} of the likeliest (greedy).",
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--work", type=Path, default=Path("outputs/zoo/arithmetic"))
    parser.add_argument("--steps", type=int, default=800, help="on right answers")
    parser.add_argument("--careless", type=int, default=400, help="on careless writers' answers")
    parser.add_argument("--batch", type=int, default=256, help="problems in each step")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    prompts = Arithmetic()
    kept, held = prompts.prompts, prompts.eval_prompts
    model = build_model(args.seed)
    train(model, rows(kept, 1.0, 1, args.seed), args.steps, 1.0, args, "right")
    print(f"right answers to held-out problems: {exact(model, held, greedy=True):.1%}", flush=True)
    train(model, rows(kept, RIGHT, 20, args.seed), args.careless, 0.5, args, "careless")
    model.half().save_pretrained(args.out, safe_serialization=True)
    letter_tokenizer(CHARACTERS).save_pretrained(args.out)
    write_card(args.out, args, len(kept), held)


if __name__ == "__main__":
    main()
