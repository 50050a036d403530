"""How good a weight set is: fixed held-out prompts from fixed noise, the same in every
evaluation.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.model.base import ImageModel
from rlfactory.model.sampling import sample
from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, Samples
from rlfactory.rollout import chunks
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
        self.watcher.phase("evaluate", total=len(self.prompts) + len(repeated))
        with self.model.weights(weights):
            images = self.draw(self.prompts, "evaluation")
            several = self.draw(repeated, "diversity")
        groups = torch.arange(len(few)).repeat_interleave(_DIVERSITY_SAMPLES)
        return Evaluation(self._scores(images, pairwise_distance(several, groups)), images)

    def preview(self, weights: str, count: int) -> Tensor:
        """The first `count` pictures of an evaluation."""
        with self.model.weights(weights):
            return self.draw(self.prompts[:count], "evaluation")

    def draw(self, prompts: list[Prompt], stream: str) -> Tensor:
        """One picture for each prompt, `[N, 3, H, W]`."""
        images = []
        for rows in chunks(len(prompts), self.sample_batch):
            index = rows.tolist()
            condition = self.model.encode([prompts[i].text for i in index])
            noise = keyed.normal(self.seed, stream, [], index, self.model.latent_shape)
            latents, _ = sample(self.model, condition, noise.to(self.model.device), self.sigmas)
            images.append(self.model.decode(latents))
            self.watcher.advance(len(index))
        return torch.cat(images)

    def _scores(self, images: Tensor, diversity: float) -> Scores:
        found = self.reward.score(
            Samples(
                prompts=[prompt.text for prompt in self.prompts],
                metadata=[prompt.metadata for prompt in self.prompts],
                groups=torch.arange(len(self.prompts)),
                images=images,
            )
        )
        tags = [str(prompt.metadata["tag"]) for prompt in self.prompts if "tag" in prompt.metadata]
        return Scores(
            prompts=[prompt.text for prompt in self.prompts],
            values={name: values.double().numpy() for name, values in found.items()},
            categories=tags if len(tags) == len(self.prompts) else None,
            diversity=diversity,
        )


def evaluation_metrics(scores: Scores) -> dict[str, float]:
    """`eval/<score>/mean`, `eval/<score>/<category>` and `eval/diversity`."""
    metrics = {f"eval/{name}/mean": mean for name, mean in scores.means().items()}
    for name, values in scores.values.items():
        for category, mask in scores.parts().items():
            metrics[f"eval/{name}/{category}"] = float(np.nanmean(values[mask]))
    return metrics | {"eval/diversity": scores.diversity}
