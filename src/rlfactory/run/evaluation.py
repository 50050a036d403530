"""How good a weight set is: fixed held-out prompts and random numbers, the same every time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from rlfactory.dealing import Deal, own_rows
from rlfactory.hardware.base import Hardware
from rlfactory.hardware.local import Local
from rlfactory.model.base import ImageModel
from rlfactory.model.text import TextModel
from rlfactory.nest import take
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
HELD_OUT = "_held_out"
ONE: Hardware = Local(device="cpu")
"""Who has all samples."""


@dataclass(frozen=True)
class Evaluation:
    """The scores of a weight set, and the samples that got them."""

    scores: Scores
    samples: Drawn


@dataclass(frozen=True)
class Evaluator:
    """Draws one sample of each prompt, with random numbers keyed by seed and prompt number.

    The `others` judge them too, each by its name; where more than `max_failed` of the samples get
    no score from one of these, that is an error. Of several processes each draws and judges its
    part, and all get the whole.
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
    hardware: Hardware = ONE

    def __call__(self, weights: str) -> Evaluation:
        """Evaluate the weight set of that name."""
        few = self.prompts[:_DIVERSITY_PROMPTS]
        repeated = [prompt for prompt in few for _ in range(_DIVERSITY_SAMPLES)]
        self.watcher.phase("evaluate", total=len(self.prompts) + len(repeated))
        groups = torch.arange(len(few)).repeat_interleave(_DIVERSITY_SAMPLES)
        deal, spread_over = self._dealt(self._groups()), self._dealt(groups)
        with self.scorer.begin(self._judge) as gathering:
            with self.model.weights(weights):
                drawn = self.draw(self.prompts, "evaluation", deal.rows)
                gathering.add(self._samples(drawn, deal.rows))
                several = self.draw(repeated, "diversity", spread_over.rows)
            found = self._found(deal.scores(gathering.scores()))
        drawn, several = _whole(drawn, deal), _whole(several, spread_over)
        spread = diversity(several.images, several.texts, groups)
        return Evaluation(self._scores(drawn, found, spread), drawn)

    def preview(self, weights: str, count: int) -> Drawn:
        """The first `count` samples of an evaluation."""
        shown = self.prompts[:count]
        deal = self._dealt(torch.arange(len(shown)))
        with self.model.weights(weights):
            drawn = self.draw(shown, "evaluation", deal.rows)
        return _whole(drawn, deal)

    def draw(self, prompts: Sequence[Prompt], stream: str, rows: Tensor | None = None) -> Drawn:
        """One sample for each prompt, or for those of some rows."""
        texts = [prompt.text for prompt in prompts]
        return self.sampler.draw(texts, seed=self.seed, stream=stream, rows=rows)

    def _groups(self) -> Tensor:
        """Equal prompts are a group."""
        prompts = [prompt.text for prompt in self.prompts]
        number = {text: i for i, text in enumerate(dict.fromkeys(prompts))}
        return torch.tensor([number[text] for text in prompts])

    def _samples(self, drawn: Drawn, rows: Tensor | None) -> Samples:
        """What rewards see: the samples, those of equal prompts a group."""
        numbers = torch.arange(len(self.prompts)) if rows is None else rows
        prompts = take(self.prompts, numbers)
        return Samples(
            prompts=[prompt.text for prompt in prompts],
            metadata=[prompt.metadata for prompt in prompts],
            groups=self._groups()[numbers],
            images=drawn.images,
            texts=drawn.texts,
        )

    def _dealt(self, groups: Tensor) -> Deal:
        """Which of the samples of some groups are this process's."""
        return Deal(own_rows(groups, self.hardware), self.hardware)

    def _found(self, scores: dict[str, Tensor]) -> dict[str, Tensor]:
        """All processes' scores; an error where one of the others lacks too many."""
        for name in self._others():
            require_scored(scores, [_held_out(name, scores)], self.max_failed)
        return scores

    def _others(self) -> dict[str, Reward]:
        """Those that are not asked anyway, as what trains or as a part of it."""
        asked = [self.reward, *getattr(self.reward, "parts", {}).values()]
        return {n: r for n, r in self.others.items() if not any(r is other for other in asked)}

    def _judge(self, samples: Samples) -> dict[str, Tensor]:
        """The scores of the reward that trains, and of the others."""
        found = judge(self.reward, samples)
        # one of the same name and other options must not take a score's place
        others = {f"{n}{HELD_OUT}" if n in found else n: r for n, r in self._others().items()}
        given = {name: judge(other, samples) for name, other in others.items()}
        return together(others, given, found)

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


def _whole(drawn: Drawn, deal: Deal) -> Drawn:
    """All processes' samples."""
    return Drawn(
        images=deal.all_if(drawn.images),
        texts=None if drawn.texts is None else deal.texts(drawn.texts),
        kl=deal.all_if(drawn.kl),
        lengths=deal.all_if(drawn.lengths),
    )


def _held_out(name: str, scores: Mapping[str, Tensor]) -> str:
    """What a reward's score is called that only evaluations ask."""
    return f"{name}{HELD_OUT}" if f"{name}{HELD_OUT}" in scores else name


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
