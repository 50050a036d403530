"""What it saves to read the prompt of a group of responses once: learning, memory and rollouts.

    python scripts/bench/shared_prompts.py                        # minutes on one core
    python scripts/bench/shared_prompts.py --prompt 40 --new 16
    python scripts/bench/shared_prompts.py --dtype bfloat16      # where the CPU multiplies it
    python scripts/bench/shared_prompts.py --prompts 8 --rollouts   # a batch of 64

GRPO's loss and its gradient for a micro-batch of whole groups, with each prompt read once and with
whole rows; and a rollout beside transformers' `generate`. A Llama of SmolLM2-135M's shape with
random weights, LoRA. The sides take turns; ratios are of medians, in CPU and in wall time. Memory
is the most bytes of tensors beyond the weights.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from unittest import mock

import torch
from rollout import generated, save_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from rlfactory.algo.ppo import PPO
from rlfactory.batch import TokenBatch
from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.precision import Precision
from rlfactory.rollout import Tokens
from rlfactory.tools.fake_tensors import Counting

SMOLLM2_135M = {
    # the config.json of HuggingFaceTB/SmolLM2-135M
    **{"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536},
    **{"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3},
    **{"max_position_embeddings": 8192, "rope_theta": 100000, "tie_word_embeddings": True},
    **{"bos_token_id": 0, "eos_token_id": 0},
}


def build(folder: Path, dtype: str) -> CausalLM:
    """A model with random weights, saved and loaded as any other."""
    save_tokenizer(folder, SMOLLM2_135M["vocab_size"])
    LlamaForCausalLM(LlamaConfig(**SMOLLM2_135M)).save_pretrained(folder)
    precision = Precision(weights=dtype, rollout=dtype, learning=dtype)
    return CausalLM(
        torch.device("cpu"),
        has_critic=False,
        path=str(folder),
        finetune="lora",
        precision=precision,
    )


def compare(name: str, sides: Mapping[str, Callable[[], object]], repeats: int) -> None:
    """Print the seconds of two sides, and how many times as fast the second one is."""
    spent: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for _ in range(repeats + 1):
        for side, work in sides.items():
            begun = time.process_time(), time.perf_counter()
            work()
            spent[side].append((time.process_time() - begun[0], time.perf_counter() - begun[1]))
    for number, clock in enumerate(("CPU", "wall")):
        found = {side: median(s[number] for s in each[1:]) for side, each in spent.items()}
        shown = ", ".join(f"{side} {seconds:.2f} s" for side, seconds in found.items())
        before, after = found.values()
        print(f"{name}, {clock}: {shown}: {before / after:.2f}x", flush=True)


def peak(work: Callable[[], object]) -> int:
    """The most bytes that tensors made by `work` take at once."""
    with Counting() as counting:
        work()
    return counting.peak


def compare_learning(model: CausalLM, dynamics: Token, tokens: Tokens, repeats: int) -> None:
    """Print the times and the memory of GRPO's loss and gradient, of whole rows and shared."""
    algo = PPO(dynamics, baseline="group", value_weight=0.0)
    batch = TokenBatch(tokens, torch.randn_like(tokens.log_prob), tokens.value)

    def shared() -> None:
        algo.loss(model, batch).value.backward()
        for parameter in model.weights.parameters.values():
            parameter.grad = None

    def whole() -> None:
        with mock.patch.object(CausalLM, "shares_prompts", False):
            shared()

    compare("learning", {"whole rows": whole, "shared": shared}, repeats)
    bytes_of = {"whole rows": peak(whole), "shared": peak(shared)}
    shown = ", ".join(f"{side} {size / 2**30:.2f} GiB" for side, size in bytes_of.items())
    print(
        f"learning, memory: {shown}: {bytes_of['shared'] / bytes_of['whole rows']:.2f}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=1, help="groups of a micro-batch")
    parser.add_argument("--rollouts", action="store_true", help="no learning")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    with tempfile.TemporaryDirectory() as folder:
        model = build(Path(folder), a.dtype)
    distinct = torch.randint(1, model.vocabulary, (a.prompts, a.prompt))
    prompt = distinct.repeat_interleave(a.group, 0)
    mask = torch.ones_like(prompt, dtype=torch.bool)
    dynamics = Token(length=a.new, stop_at_end=False)

    def ours() -> Tokens:
        return model.rollout(prompt, mask, dynamics, torch.rand(len(prompt), a.new)).measured()

    def theirs() -> None:
        with model.precision.sampling(), model.precision.autocast(model.device):
            generated(model, prompt, a.new, least=a.new)

    shape = f"{a.prompts} x {a.group} responses of {a.new} tokens after {a.prompt}"
    print(f"{shape}, {a.dtype}", flush=True)
    if not a.rollouts:
        compare_learning(model, dynamics, ours(), a.repeats)
    compare("rollout", {"generate": theirs, "rollout": ours}, a.repeats)


if __name__ == "__main__":
    main()
