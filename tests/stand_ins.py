"""A model of two numbers, a reward of brightness, processes that are threads, a random GPT-2."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from rlfactory.dynamics.ops.forward_process import RectifiedFlow
from rlfactory.hardware.local import Local
from rlfactory.model.base import ImageModel, Resolution
from rlfactory.model.weight_sets import WeightSets
from rlfactory.reward.base import Reward, Samples
from rlfactory.rollout import Condition


class LinearModel(ImageModel):
    """Predicts `weight * x + bias`: two numbers to train, `[B, 1, 2, 2]` latents."""

    process = "flow"
    forward_process = RectifiedFlow()
    resolution = Resolution((1, 2, 2), shift=3.0)
    device = torch.device("cpu")

    def __init__(self, weight: float, bias: float) -> None:
        self.weight = nn.Parameter(torch.tensor(weight))
        self.bias = nn.Parameter(torch.tensor(bias))
        self.weights = WeightSets({"weight": self.weight, "bias": self.bias})
        self.calls = 0

    def resolution_of(self, size: int) -> Resolution:
        return Resolution((1, size, size), shift=3.0)

    def encode(self, prompts: Sequence[str]) -> Condition:
        return Condition({"length": torch.tensor([float(len(prompt)) for prompt in prompts])})

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        self.calls += 1
        self.evaluations.add(len(x))
        return self.weight * x + self.bias

    def decode(self, latents: Tensor) -> Tensor:
        return (latents.repeat(1, 3, 1, 1) * 50 + 128).clamp(0, 255).to(torch.uint8)

    def encode_images(self, images: Tensor) -> Tensor:
        grey = images.double().mean(1, keepdim=True)
        return nn.functional.adaptive_avg_pool2d((grey - 128) / 50, 2).float()

    def export(self, folder: Path, values: Mapping[str, Tensor] | None = None) -> None:
        raise NotImplementedError

    def export_merged(self, folder: Path) -> None:
        raise NotImplementedError

    def pipeline_arguments(self) -> dict[str, object]:
        return {}


class Brightness(Reward):
    """How bright a picture is; those that show the same get the same."""

    media = "images"
    main = "shapes"

    def score(self, samples: Samples) -> dict[str, Tensor]:
        assert samples.images is not None
        return {"shapes": samples.images.float().mean((1, 2, 3)) / 255}


class Threaded(Local):
    """One of several processes that are threads: they wait for each other at every question."""

    def __init__(self, rank: int, count: int, table: list[Any], barrier: threading.Barrier) -> None:
        super().__init__(device="cpu")
        self.rank, self.world_size = rank, count
        self._table, self._barrier = table, barrier

    def _all(self, value: Any) -> list[Any]:
        self._table[self.rank] = value
        self._barrier.wait()
        found = list(self._table)
        self._barrier.wait()
        return found

    def all_gather(self, values: Tensor) -> Tensor:
        return torch.cat(self._all(values))

    def all_gather_list(self, texts: Sequence[str]) -> list[str]:
        return [text for part in self._all(list(texts)) for text in part]

    def all_reduce_sum(self, value: float) -> float:
        return float(sum(self._all(value)))

    def all_reduce_max(self, value: float) -> float:
        return float(max(self._all(value)))

    def any_rank(self, flag: bool) -> bool:
        return any(self._all(flag))

    def first_rank_where(self, flag: bool) -> int | None:
        return next((rank for rank, found in enumerate(self._all(flag)) if found), None)

    def broadcast(self, value: Any, source: int = 0) -> Any:
        return self._all(value)[source]

    def step(self, optimizer: Any, parameters: Sequence[nn.Parameter], limit: float) -> Any:
        every = self._all([None if p.grad is None else p.grad.clone() for p in parameters])
        for parameter, grads in zip(parameters, zip(*every, strict=True), strict=True):
            known = [grad for grad in grads if grad is not None]
            parameter.grad = sum(known, torch.zeros_like(parameter)) if known else None
        return super().step(optimizer, parameters, limit)


def save_gpt2(folder: Path) -> None:
    """Save a random GPT-2 of two layers and a tokenizer of bytes."""
    alphabet = sorted(ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*alphabet, "<|endoftext|>"])}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", bos_token="<|endoftext|>"
    ).save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        end = vocabulary["<|endoftext|>"]
        config = GPT2Config(
            vocab_size=len(vocabulary),
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=2,
            bos_token_id=end,
            eos_token_id=end,
            initializer_range=0.3,
        )
        GPT2LMHeadModel(config).save_pretrained(folder)
