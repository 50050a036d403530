"""DDPO's running statistics of each prompt: rewards are compared over iterations, not in groups."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlfactory.advantage.base import Advantage
from rlfactory.advantage.formulas import clipped
from rlfactory.rollout import Rollout
from rlfactory.types import Positive, PositiveInt


class PromptTracker(Advantage):
    """`A = (r - mean) / (std + eps)`, clipped, with the population statistics of the last
    `buffer_size` rewards of the prompt, the present ones among them.

    A prompt with fewer than `min_count` is compared with the batch. The key is the prompt's text,
    all of it: published code elsewhere goes by the first 77 tokens, and merges prompts.
    """

    grouped = False

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

    def __call__(self, rollout: Rollout, main: str) -> Rollout:
        """Advantages `[B]`, after this iteration's rewards have joined the buffers."""
        rewards = rollout.rewards[main].double()
        for prompt, reward in zip(rollout.prompts, rewards.tolist(), strict=True):
            self._rewards.setdefault(prompt, deque(maxlen=self.buffer_size)).append(reward)
        batch = mean_and_std(rewards)
        own = {prompt: self._own(prompt, batch) for prompt in rollout.prompts}
        mean, std = rewards.new_tensor([own[p] for p in rollout.prompts]).reshape(-1, 2).unbind(1)
        advantage = ((rewards - mean) / (std + self.eps)).float()
        if self.clip is not None:
            advantage = clipped(advantage, self.clip)
        return replace(rollout, advantage=advantage)

    def _own(self, prompt: str, batch: tuple[float, float]) -> tuple[float, float]:
        """What the prompt's rewards are compared with."""
        kept = self._rewards[prompt]
        if len(kept) < self.min_count:
            return batch
        return mean_and_std(torch.tensor(kept, dtype=torch.double))

    def state_dict(self) -> dict[str, Any]:
        """Each prompt's rewards, the oldest first."""
        return {prompt: list(rewards) for prompt, rewards in self._rewards.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the rewards of each prompt."""
        self._rewards = {p: deque(rewards, self.buffer_size) for p, rewards in state.items()}


def mean_and_std(values: Tensor) -> tuple[float, float]:
    """Mean and population deviation of some numbers."""
    mean = values.mean()
    return mean.item(), (values - mean).square().mean().sqrt().item()
