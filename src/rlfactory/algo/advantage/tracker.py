"""Per-prompt running statistics (DDPO): rewards are compared over iterations, not within groups."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlfactory.algo.advantage.base import Advantage
from rlfactory.algo.advantage.formulas import clip_advantages
from rlfactory.prompts.ops.pictured import identity
from rlfactory.rollout import Rollout
from rlfactory.utils.types import Faults, Positive, PositiveInt


class PromptTracker(Advantage):
    """`A = clip((r - mean) / (std + eps))` over the last `buffer_size` rewards of the prompt.

    The current rewards are in the buffer before its population statistics are taken. A prompt with
    fewer than `min_count` rewards uses the batch's statistics. The key is the prompt's full text,
    and its picture if it has one; some published code keys by the first 77 tokens, which merges
    long prompts.

    Args:
        buffer_size: Rewards kept for each prompt.
        min_count: Rewards from which on a prompt uses its own statistics.
        eps: Added to the std.
        clip: Limit of the advantage's magnitude; None: not clipped.
    """

    grouped = False
    least_rewards = "min_count"

    def __init__(
        self,
        *,
        buffer_size: PositiveInt = 32,
        min_count: PositiveInt = 16,
        eps: Positive = 1e-6,
        clip: Positive | None = 5.0,
    ) -> None:
        self.buffer_size, self.min_count = buffer_size, min_count
        self.eps, self.clip = eps, clip
        self._rewards: dict[str, deque[float]] = {}

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """A prompt's buffer can hold as many rewards as its statistics need."""
        size, least = options["buffer_size"], options["min_count"]
        if least > size:
            message = (
                f"is {least}, and a buffer holds {size}: no prompt would have its own statistics"
            )
            yield "min_count", message, f"advantage.min_count={size}"

    def __call__(self, rollout: Rollout, main: str) -> Rollout:
        """Advantages `[B]`, computed after the rewards have been added to the buffers."""
        rewards = rollout.rewards[main].double()
        prompts = [identity(prompt) for prompt in rollout.prompts]
        for prompt, reward in zip(prompts, rewards.tolist(), strict=True):
            self._rewards.setdefault(prompt, deque(maxlen=self.buffer_size)).append(reward)
        batch = mean_and_std(rewards)
        stats = {prompt: self._stats(prompt, batch) for prompt in prompts}
        table = rewards.new_tensor([stats[prompt] for prompt in prompts])
        mean, std = table.reshape(-1, 2).unbind(1)
        advantage = ((rewards - mean) / (std + self.eps)).float()
        if self.clip is not None:
            advantage = clip_advantages(advantage, self.clip)
        return replace(rollout, advantage=advantage)

    def _stats(self, prompt: str, batch: tuple[float, float]) -> tuple[float, float]:
        """Mean and std for a prompt: its own, or the batch's while it has too few rewards."""
        rewards = self._rewards[prompt]
        if len(rewards) < self.min_count:
            return batch
        return mean_and_std(torch.tensor(rewards, dtype=torch.double))

    def state_dict(self) -> dict[str, Any]:
        """The rewards of each prompt, oldest first."""
        return {prompt: list(rewards) for prompt, rewards in self._rewards.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rewards = {
            prompt: deque(map(float, rewards), self.buffer_size)
            for prompt, rewards in state.items()
        }


def mean_and_std(values: Tensor) -> tuple[float, float]:
    """Mean and population standard deviation of `values` `[n]`; of equal values exactly (v, 0)."""
    if len(values) and bool((values == values[0]).all()):  # their mean may be rounded
        return values[0].item(), 0.0
    mean = values.mean()
    return mean.item(), (values - mean).square().mean().sqrt().item()
