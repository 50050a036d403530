"""What it saves to read the prompt of a group of responses once: learning, memory and rollouts.

    python scripts/bench/shared_prompts.py                        # minutes on one core
    python scripts/bench/shared_prompts.py --prompt 40 --new 16
    python scripts/bench/shared_prompts.py --dtype bfloat16      # where the CPU multiplies it
    python scripts/bench/shared_prompts.py --prompts 8 --rollouts   # a batch of 64

GRPO's loss and its gradient for a micro-batch of whole groups, with each prompt read once and with
whole rows; and a rollout beside transformers' `generate`. A Llama of SmolLM2-135M's shape with
random weights, LoRA. Memory is the most bytes of tensors beyond the weights.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import torch
from floor import clock_of
from rollout import generated, save_tokenizer
from sides import Side, finish, machine, parser, turns
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


def build(folder: Path, dtype: str, device: torch.device) -> CausalLM:
    """A model with random weights, saved and loaded as any other."""
    save_tokenizer(folder, SMOLLM2_135M["vocab_size"])
    LlamaForCausalLM(LlamaConfig(**SMOLLM2_135M)).save_pretrained(folder)
    precision = Precision(weights=dtype, rollout=dtype, learning=dtype)
    return CausalLM(
        device,
        has_critic=False,
        path=str(folder),
        finetune="lora",
        precision=precision,
    )


def gib(work: Callable[[], object]) -> float:
    """The most GiB that tensors made by `work` take at once."""
    with Counting() as counting:
        work()
    return round(counting.peak / 2**30, 3)


def learning(model: CausalLM, dynamics: Token, tokens: Tokens, rounds: int) -> dict[str, Side]:
    """GRPO's loss and gradient, of whole rows and with prompts read once."""
    algo = PPO(dynamics, baseline="group", value_weight=0.0)
    batch = TokenBatch(tokens, torch.randn_like(tokens.log_prob), tokens.value)

    def shared() -> None:
        algo.loss(model, batch).value.backward()
        for parameter in model.weights.parameters.values():
            parameter.grad = None

    def whole() -> None:
        with mock.patch.object(CausalLM, "shares_prompts", False):
            shared()

    works = {"whole rows": whole, "shared": shared}
    sides = turns(works, rounds, clock_of(model.device))
    for name, work in works.items():
        sides[name].gib = gib(work)
    return sides


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--prompt", type=int, default=256)
    made.add_argument("--new", type=int, default=32)
    made.add_argument("--group", type=int, default=8)
    made.add_argument("--prompts", type=int, default=1, help="groups of a micro-batch")
    made.add_argument("--rollouts", action="store_true", help="no learning")
    made.add_argument("--rounds", type=int, default=4)
    made.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    made.add_argument("--threads", type=int, default=1, help="CPU threads of each side")
    made.add_argument("--gpu", action="store_true", help="on a GPU")
    a, began = made.parse_args(), machine()
    torch.set_num_threads(a.threads)
    device = torch.device("cuda" if a.gpu else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        model = build(Path(folder), a.dtype, device)
    distinct = torch.randint(1, model.vocabulary, (a.prompts, a.prompt), device=device)
    prompt = distinct.repeat_interleave(a.group, 0)
    mask = torch.ones_like(prompt, dtype=torch.bool)
    dynamics = Token(length=a.new, stop_at_end=False)

    def rollout() -> Tokens:
        uniform = torch.rand(len(prompt), a.new, device=device)
        return model.rollout(prompt, mask, dynamics, uniform).measured()

    def ours() -> None:
        rollout()

    def theirs() -> None:
        with model.precision.sampling(), model.precision.autocast(model.device):
            generated(model, prompt, a.new, least=a.new)

    found = {} if a.rollouts else {"learning": learning(model, dynamics, rollout(), a.rounds)}
    works = {"generate": theirs, "rlfactory": ours}
    found["rollout"] = turns(works, a.rounds, clock_of(device))
    finish(a, began, found)


if __name__ == "__main__":
    main()
