"""Memory of learning by `model=qwen3` at full size, on fake tensors of CUDA.

    python tests/device/fake_language.py memory=roomy        # one JSON object

Qwen3-8B as its configuration in conf/ says, with the policy's loss, the penalty and their backward
pass for one response, of 4,096 tokens unless words say otherwise.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from typing import Any
from unittest import mock

import fake_cuda  # before torch: it loads the guard
import torch
from torch import Tensor
from transformers import AutoConfig

from rlfactory.algo.ppo import PPO
from rlfactory.batch import TokenBatch
from rlfactory.config.overrides import plan_from_words
from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.loading import load_language_model
from rlfactory.model.memory import Memory
from rlfactory.model.precision import Precision
from rlfactory.regularizer.coefficient import Fixed
from rlfactory.regularizer.kl_token import KLToken
from rlfactory.rollout import Tokens
from rlfactory.tools.fake_tensors import Counting, with_fake_tensors

PROMPT = 512
QWEN3_8B = {
    # the config.json of Qwen/Qwen3-8B
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}


class WholeTokens(Tokens):
    """Tokens without padding: their number follows from shapes, as fake ones have no values."""

    count = property(lambda self: self.mask.numel())  # type: ignore[assignment]
    prompts_are_padded = property(lambda _: False)  # type: ignore[assignment]


def options(group: Mapping[str, Any], *without: str) -> dict[str, Any]:
    """The constructor's keywords in a group of the configuration."""
    return {key: value for key, value in group.items() if key not in ("_target_", *without)}


def language_model(config: Mapping[str, Any]) -> CausalLM:
    """The model on meta; the tokenizer, which is not measured, is the small GPT-2's."""
    with tempfile.TemporaryDirectory() as folder:
        AutoConfig.for_model(**QWEN3_8B).save_pretrained(folder)
        load_language_model("zoo:tiny_gpt2")[1].save_pretrained(folder)
        return CausalLM(
            torch.device("meta"),
            precision=Precision(**options(config["precision"])),
            memory=Memory(**options(config["memory"])),
            path=folder,
            **options(config["model"], "path"),
        )


def whole_tokens(length: int) -> Tokens:
    """One prompt and a response of `length` tokens."""

    def filled(width: int, dtype: torch.dtype) -> Tensor:
        return torch.ones(1, width, dtype=dtype, device="cuda")

    ids, real, number = torch.int64, torch.bool, torch.float32
    return WholeTokens(
        prompt=filled(PROMPT, ids),
        prompt_mask=filled(PROMPT, real),
        response=filled(length, ids),
        mask=filled(length, real),
        ended=torch.ones(1, dtype=real, device="cuda"),
        log_prob=filled(length, number),
        value=filled(length, number),
        reference_log_prob=filled(length, number),
        lengths=torch.tensor([[PROMPT, length]]),
    )


def measure(*words: str) -> dict[str, float]:
    """GiB of weights, of what a forward pass saves, and of the largest moment with weights."""
    config = plan_from_words("model=qwen3", "dynamics.length=4096", *words).config
    model, token = language_model(config), Token(**options(config["dynamics"]))
    algo = PPO(token, **options(config["algo"]))
    coefficient = Fixed(**options(config["regularizer"]["coefficient"]))
    kl = KLToken(token, **options(config["regularizer"], "coefficient"), coefficient=coefficient)
    with fake_cuda.fake_gpu() as mode:
        for part in (model.network, model.critic):
            with_fake_tensors(part, mode, "cuda")
        model.device = torch.device("cuda")
        model._unused = torch.ones(len(model.unused_ids), dtype=torch.int64, device="cuda")
        weights = sum(p.numel() * p.element_size() for p in model.network.parameters())
        tokens = whole_tokens(token.length)
        batch = TokenBatch(tokens, tokens.log_prob, tokens.value)
        with Counting() as live:
            found = algo.loss(model, batch)
            penalty, _ = kl.penalty(model, batch, found.outputs)
            saved = live.now
            (found.value + penalty).backward()
    total = {"weights": weights, "saved": saved, "peak": weights + live.peak}
    return {name: round(size / 2**30, 3) for name, size in total.items()}


def main() -> None:
    fake_cuda.pretend()
    # transformers looks whether positions begin anew, which fake ones can't say
    packed = "transformers.masking_utils.find_packed_sequence_indices"
    with mock.patch(packed, return_value=None):
        print(json.dumps({"qwen3_8b": measure(*sys.argv[1:])}), flush=True)


if __name__ == "__main__":
    main()
