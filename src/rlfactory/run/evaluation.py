"""How good a weight set is: fixed held-out prompts and random numbers, the same every time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rlfactory.model.base import ImageModel
from rlfactory.model.text import TextModel
from rlfactory.parts import Watcher
from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, Samples, judge
from rlfactory.run.diversity import diversity
from rlfactory.run.scores import Scores
from rlfactory.sampler.base import Drawn, Sampler

_DIVERSITY_PROMPTS = 16
_DIVERSITY_SAMPLES = 4


@dataclass(frozen=True)
class Evaluation:
    """The scores of a weight set, and the samples that got them."""

    scores: Scores
    samples: Drawn


@dataclass(frozen=True)
class Evaluator:
    """Draws one sample of each prompt, with random numbers keyed by seed and prompt number."""

    model: ImageModel | TextModel
    sampler: Sampler
    reward: Reward
    prompts: list[Prompt]
    seed: int
    watcher: Watcher

    def __call__(self, weights: str) -> Evaluation:
        """Evaluate the weight set of that name."""
        few = self.prompts[:_DIVERSITY_PROMPTS]
        repeated = [prompt for prompt in few for _ in range(_DIVERSITY_SAMPLES)]
        self.watcher.phase("evaluate", total=len(self.prompts) + len(repeated))
        with self.model.weights(weights):
            drawn = self.draw(self.prompts, "evaluation")
            several = self.draw(repeated, "diversity")
        groups = torch.arange(len(few)).repeat_interleave(_DIVERSITY_SAMPLES)
        spread = diversity(several.images, several.texts, groups)
        return Evaluation(self._scores(drawn, spread), drawn)

    def preview(self, weights: str, count: int) -> Drawn:
        """The first `count` samples of an evaluation."""
        with self.model.weights(weights):
            return self.draw(self.prompts[:count], "evaluation")

    def draw(self, prompts: Sequence[Prompt], stream: str) -> Drawn:
        """One sample for each prompt."""
        texts = [prompt.text for prompt in prompts]
        return self.sampler.draw(texts, seed=self.seed, stream=stream)

    def _scores(self, drawn: Drawn, spread: float) -> Scores:
        prompts = [prompt.text for prompt in self.prompts]
        number = {text: i for i, text in enumerate(dict.fromkeys(prompts))}
        samples = Samples(
            prompts=prompts,
            metadata=[prompt.metadata for prompt in self.prompts],
            groups=torch.tensor([number[text] for text in prompts]),
            images=drawn.images,
            texts=drawn.texts,
        )
        found = judge(self.reward, samples)
        tags = [str(prompt.metadata["tag"]) for prompt in self.prompts if "tag" in prompt.metadata]
        return Scores(
            prompts=prompts,
            values={name: values.double().numpy() for name, values in found.items()},
            categories=tags if len(tags) == len(prompts) else None,
            diversity=spread,
            kl=_per_token(drawn),
        )


def _per_token(drawn: Drawn) -> float:
    """The KL divergence in nats a token, NaN where there is none."""
    if drawn.kl is None or drawn.lengths is None:
        return float("nan")
    return float(drawn.kl.double().sum() / drawn.lengths.sum())


def evaluation_metrics(scores: Scores) -> dict[str, float]:
    """`eval/<score>/mean`, `eval/<score>/<category>`, `eval/diversity`, and `eval/kl` of texts."""
    metrics = {f"eval/{name}/mean": mean for name, mean in scores.means().items()}
    for name, values in scores.values.items():
        for category, mask in scores.parts().items():
            metrics[f"eval/{name}/{category}"] = float(np.nanmean(values[mask]))
    metrics["eval/diversity"] = scores.diversity
    return metrics if np.isnan(scores.kl) else metrics | {"eval/kl": scores.kl}
