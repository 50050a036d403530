"""How good a weight set is: fixed held-out prompts and random numbers, the same every time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from rlfactory.model.base import ImageModel
from rlfactory.model.text import TextModel
from rlfactory.overlap import Scorer
from rlfactory.parts import Watcher
from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, Samples, judge
from rlfactory.reward.combine import together
from rlfactory.run.diversity import diversity
from rlfactory.run.scores import Scores
from rlfactory.sampler.base import Drawn, Sampler
from rlfactory.scoring import require_scored

_DIVERSITY_PROMPTS = 16
_DIVERSITY_SAMPLES = 4


@dataclass(frozen=True)
class Evaluation:
    """The scores of a weight set, and the samples that got them."""

    scores: Scores
    samples: Drawn


@dataclass(frozen=True)
class Evaluator:
    """Draws one sample of each prompt, with random numbers keyed by seed and prompt number.

    The `others` judge them too, each by its name; where more than `max_failed` of the samples get
    no score from one of these, that is an error.
    """

    model: ImageModel | TextModel
    sampler: Sampler
    reward: Reward
    prompts: list[Prompt]
    seed: int
    watcher: Watcher
    others: Mapping[str, Reward] = field(default_factory=dict)
    scorer: Scorer = field(default_factory=Scorer)
    max_failed: float = 1.0

    def __call__(self, weights: str) -> Evaluation:
        """Evaluate the weight set of that name."""
        few = self.prompts[:_DIVERSITY_PROMPTS]
        repeated = [prompt for prompt in few for _ in range(_DIVERSITY_SAMPLES)]
        self.watcher.phase("evaluate", total=len(self.prompts) + len(repeated))
        with self.scorer.begin(self._judge) as gathering:
            with self.model.weights(weights):
                drawn = self.draw(self.prompts, "evaluation")
                gathering.add(self._samples(drawn))
                several = self.draw(repeated, "diversity")
            found = gathering.scores()
        groups = torch.arange(len(few)).repeat_interleave(_DIVERSITY_SAMPLES)
        spread = diversity(several.images, several.texts, groups)
        return Evaluation(self._scores(drawn, found, spread), drawn)

    def preview(self, weights: str, count: int) -> Drawn:
        """The first `count` samples of an evaluation."""
        with self.model.weights(weights):
            return self.draw(self.prompts[:count], "evaluation")

    def draw(self, prompts: Sequence[Prompt], stream: str) -> Drawn:
        """One sample for each prompt."""
        texts = [prompt.text for prompt in prompts]
        return self.sampler.draw(texts, seed=self.seed, stream=stream)

    def _samples(self, drawn: Drawn) -> Samples:
        """What rewards see: the samples, those of equal prompts a group."""
        prompts = [prompt.text for prompt in self.prompts]
        number = {text: i for i, text in enumerate(dict.fromkeys(prompts))}
        return Samples(
            prompts=prompts,
            metadata=[prompt.metadata for prompt in self.prompts],
            groups=torch.tensor([number[text] for text in prompts]),
            images=drawn.images,
            texts=drawn.texts,
        )

    def _others(self) -> dict[str, Reward]:
        """Those that are not asked anyway, as what trains or as a part of it."""
        asked = [self.reward, *getattr(self.reward, "parts", {}).values()]
        return {n: r for n, r in self.others.items() if not any(r is other for other in asked)}

    def _judge(self, samples: Samples) -> dict[str, Tensor]:
        """The scores of the reward that trains, and of the others."""
        found = judge(self.reward, samples)
        # one of the same name and other options must not take a score's place
        others = {f"{n}_held_out" if n in found else n: r for n, r in self._others().items()}
        given = {name: judge(other, samples) for name, other in others.items()}
        scores = together(others, given, found)
        for name in others:
            require_scored(scores, [name], self.max_failed)
        return scores

    def _scores(self, drawn: Drawn, found: Mapping[str, Tensor], spread: float) -> Scores:
        prompts = [prompt.text for prompt in self.prompts]
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
