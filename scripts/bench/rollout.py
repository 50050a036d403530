"""The speed of a rollout relative to transformers' `generate`: same model, prompts and settings.

    python scripts/bench/rollout.py                        # a GPT-2 of 4 layers, random weights
    python scripts/bench/rollout.py --layers 12 --width 768 --vocabulary 50257 --batch 16 --new 32

    python scripts/bench/rollout.py --end 0.04             # each token is the last with p = 0.04
    python scripts/bench/rollout.py --prompt 256 --new 32 --group 8  # 8 responses to each prompt

The rollout also records log-probabilities and values, which `generate` would compute again.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM

END = "<|endoftext|>"


def save_tokenizer(folder: Path, vocabulary: int) -> None:
    """Write a tokenizer of whole words, the first of which ends a text."""
    words = {END: 0} | {f"w{i}": i for i in range(1, vocabulary)}
    tokenizer = Tokenizer(WordLevel(words, unk_token=END))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END).save_pretrained(folder)


@torch.no_grad()
def generated(model: CausalLM, prompt: Tensor, length: int, *, least: int | None) -> Tensor:
    """Responses by transformers' `generate`, as a rollout draws them: all tokens, temperature 1."""
    ids: Tensor = model.network.generate(
        input_ids=prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        top_k=0,
        top_p=1.0,
        max_new_tokens=length,
        min_new_tokens=least,
        pad_token_id=0,
    )
    return ids[:, prompt.shape[1] :]


def build(folder: Path, layers: int, width: int, vocabulary: int, ends: int) -> CausalLM:
    """A GPT-2 with random weights, saved and loaded as any other.

    The first `ends` of its tokens end a text.
    """
    save_tokenizer(folder, vocabulary)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=512,
        n_embd=width,
        n_layer=layers,
        n_head=width // 64,
        bos_token_id=0,
        eos_token_id=[*range(ends)],
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    return CausalLM(torch.device("cpu"), path=str(folder))


def tokens_per_second(
    works: Mapping[str, Callable[[], int]], repeats: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Rates of each repeat, after one for warm-up; `work` returns its number of tokens.

    The works take turns, so that what else the machine does slows all of them.
    """
    rates: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, work in works.items():
            begun = clock()
            tokens = work()
            rates[name].append(tokens / (clock() - begun))
    return {name: found[1:] for name, found in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=8)
    parser.add_argument("--group", type=int, default=1, help="responses to each prompt")
    parser.add_argument("--new", type=int, default=75)
    parser.add_argument("--end", type=float, default=0.0, help="share of tokens that end a text")
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--threads", type=int, help="of torch; default: its own")
    parser.add_argument("--cpu-time", action="store_true", help="for a machine that is busy")
    a = parser.parse_args()
    ends = max(1, round(a.end * a.vocabulary))
    with tempfile.TemporaryDirectory() as folder:
        model = build(Path(folder), a.layers, a.width, a.vocabulary, ends)
    prompt = torch.randint(ends, a.vocabulary, (a.batch // a.group, a.prompt))
    prompt = prompt.repeat_interleave(a.group, 0)
    mask = torch.ones_like(prompt, dtype=torch.bool)
    dynamics = Token(length=a.new, stop_at_end=a.end > 0)

    def ours() -> int:
        uniform = torch.rand(a.batch, a.new)
        return int(model.rollout(prompt, mask, dynamics, uniform).mask.sum())

    def theirs() -> int:
        ids = generated(model, prompt, a.new, least=None if a.end else a.new)
        before = (ids < ends).cumsum(1) - (ids < ends).long()
        return int((before == 0).sum()) if a.end else ids.numel()

    if a.threads:
        torch.set_num_threads(a.threads)
    clock = time.process_time if a.cpu_time else time.perf_counter
    rates = tokens_per_second({"generate": theirs, "rollout": ours}, a.repeats, clock)
    for name, found in rates.items():
        ratios = [mine / other for mine, other in zip(found, rates["generate"], strict=True)]
        spread = f"({min(ratios):.2f} to {max(ratios):.2f})" if name == "rollout" else ""
        print(f"{name:<10} {median(found):10,.0f} tokens/s  {median(ratios):.2f}x {spread}")


if __name__ == "__main__":
    main()
