"""How good a weight set is: fixed held-out prompts from fixed noise, the same in every evaluation of a seed."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.model.base import ImageModel
from rlfactory.model.sampling import sample
from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, Samples
from rlfactory.run.diversity import pairwise_distance
from rlfactory.run.scores import Scores
from rlfactory.trainer import Watcher

_DIVERSITY_PROMPTS = 16
_DIVERSITY_SAMPLES = 4


@dataclass(frozen=True)
class Evaluation:
    """The scores of a weight set, and the pictures that got them `[N, 3, H, W]`."""

    scores: Scores
    images: Tensor


@dataclass(frozen=True)
class Evaluator:
    """Samples by the ODE from `sigmas`; the starting noise is keyed by seed and prompt number."""

    model: ImageModel
    reward: Reward
    prompts: list[Prompt]
    sigmas: Tensor
    seed: int
    sample_batch: int
    watcher: Watcher

    def __call__(self, weights: str) -> Evaluation:
        """Evaluate the weight set of that name."""
        few = self.prompts[:_DIVERSITY_PROMPTS]
        repeated = [prompt for prompt in few for _ in range(_DIVERSITY_SAMPLES)]
        self.watcher.phase("evaluate", len(self.prompts) + len(repeated))
        with self.model.weights(weights):
            images = self.draw(self.prompts, "evaluation")
            several = self.draw(repeated, "diversity")
        found = self.reward.score(_samples(self.prompts, images))
        groups = torch.arange(len(few)).repeat_interleave(_DIVERSITY_SAMPLES)
        categories = [
            str(prompt.metadata["tag"]) for prompt in self.prompts if "tag" in prompt.metadata
        ]
        scores = Scores(
            values={name: np.asarray(values, dtype=float) for name, values in found.items()},
            prompts=[prompt.text for prompt in self.prompts],
            categories=categories if len(categories) == len(self.prompts) else None,
            diversity=pairwise_distance(several, groups),
        )
        return Evaluation(scores, images)

    def draw(self, prompts: list[Prompt], stream: str) -> Tensor:
        """One picture for each prompt."""
        images = []
        for rows in torch.arange(len(prompts)).split(self.sample_batch):
            index = rows.tolist()
            condition = self.model.encode([prompts[i].text for i in index])
            noise = keyed.normal(self.seed, stream, [], index, self.model.latent_shape)
            latents, _ = sample(self.model, condition, noise.to(self.model.device), self.sigmas)
            images.append(self.model.decode(latents))
            self.watcher.advance(len(index))
        return torch.cat(images)


def _samples(prompts: list[Prompt], images: Tensor) -> Samples:
    return Samples(
        prompts=[prompt.text for prompt in prompts],
        metadata=[prompt.metadata for prompt in prompts],
        groups=torch.arange(len(prompts)),
        images=images,
    )
