"""Evaluates a weight set: evaluation prompts and random numbers that are the same every time."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from rlfactory.batch import TokenBatch
from rlfactory.hardware.base import Hardware
from rlfactory.model.base import Model
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.reward.base import Reward, Samples, directions, score_checked
from rlfactory.reward.combine import merge_directions, merge_scores
from rlfactory.rollout import GeneratedSamples
from rlfactory.run.scores import Scores
from rlfactory.train.components import Components, ProgressListener
from rlfactory.train.data_parallel import Shard, local_rows
from rlfactory.train.iteration_metrics import (
    mean_per_token,
    pairwise_distance,
    require_scored,
    text_measures,
)
from rlfactory.train.sampling.base import Sampler
from rlfactory.train.scoring.async_scorer import Scorer
from rlfactory.utils.pytree import index_rows, row_numbers
from rlfactory.utils.sizes import DIVERSITY_PROMPTS, DIVERSITY_SAMPLES
from rlfactory.utils.text import distinct

EVALUATION_SUFFIX = "_evaluation"
"""The suffix of an evaluation reward's score where the training reward has one of the same name."""
TOKENS = "tokens"


@dataclass(frozen=True)
class Evaluation:
    """The evaluation scores of a weight set, and the samples that got them.

    `sets` holds the same of further prompt sets, by name.
    """

    scores: Scores
    samples: GeneratedSamples
    sets: "Mapping[str, Evaluation]" = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluator:
    """Draws a sample for each evaluation prompt, and scores it.

    Random numbers are keyed by the seed and the sample's number. Each rank draws and scores its
    shard, and all get the scores and samples of all.

    Attributes:
        reward: the reward that trains; None for a prompt set that it does not score.
        others: further rewards that score evaluation samples, by name.
        given: computes the loss of the rows themselves; None where these are prompts alone.
        max_failed: the share of samples that may lack a score of one of `others`.
        separate: whether no prompt is trained on.
        prompts: of each sample; all prompts `noises` times in one order.
        sets: the evaluators of further prompt sets, by name.
    """

    model: Model
    sampler: Sampler
    reward: Reward | None
    prompts: list[Prompt]
    seed: int
    progress: ProgressListener
    hardware: Hardware
    others: Mapping[str, Reward] = field(default_factory=dict)
    scorer: Scorer = field(default_factory=Scorer)
    max_failed: float = 1.0
    separate: bool = False
    noises: int = 1
    given: "GivenEvaluation | None" = None
    sets: "Mapping[str, Evaluator]" = field(default_factory=dict)

    @property
    def main(self) -> str:
        """The score that is shown first: of the training reward, or else the first one.

        Raises:
            PromptError: there is none.
        """
        if self.reward is not None:
            return self.reward.main
        names: list[str] = [*(self.given.better if self.given else ()), *self.others]
        if names:
            return names[0]
        raise PromptError(
            "there is nothing to evaluate: a prompt of the evaluation has nothing that is learned"
            f" beside it, as {self.prompts[0].text[:40]!r}, and no reward scores samples; give the"
            " evaluation's rows the columns of the training data, or choose a reward"
        )

    @property
    def draws(self) -> bool:
        """Whether samples are drawn, for a reward to score."""
        return self.reward is not None or bool(self.others)

    @property
    def best_score(self) -> float | None:
        """The highest main score that there is; None if unbounded or unknown."""
        rewards = [self.reward, *([] if self.given else self.others.values())]
        return next((reward.best_score for reward in rewards if reward is not None), None)

    def __call__(self, weights: str) -> Evaluation:
        """Evaluate the weight set of this name.

        Raises:
            TrainingError: one of `others` failed on more than `max_failed` of the samples.
        """
        given, shard = {}, self._shard(self._groups())
        if self.given is not None:
            self.progress.phase("evaluate", total=len(self.prompts) * self.given.size)
            with self.model.weights(weights):
                measured = self.given.measure(self.prompts, shard.rows)
            given = self.given.finish(shard.all_gather_scores(measured))
        samples, scores, spread = GeneratedSamples(), dict[str, Tensor](), float("nan")
        if self.draws:
            samples, scores, spread = self._drawn(weights, shard)
        scores = {**scores, **given} if self.reward is not None else {**given, **scores}
        sets = {name: evaluator(weights) for name, evaluator in self.sets.items()}
        return Evaluation(self._scores(samples, scores, spread), samples, sets)

    def _drawn(
        self, weights: str, shard: Shard
    ) -> tuple[GeneratedSamples, dict[str, Tensor], float]:
        """The samples of all ranks, their scores, and how diverse samples of a prompt are."""
        few = self.prompts[:DIVERSITY_PROMPTS]
        repeated = [prompt for prompt in few for _ in range(DIVERSITY_SAMPLES)]
        self.progress.phase("evaluate", total=len(self.prompts) + len(repeated))
        repeated_groups = torch.arange(len(few)).repeat_interleave(DIVERSITY_SAMPLES)
        repeated_shard = self._shard(repeated_groups)
        with self.scorer.begin(self._score) as pending:
            with self.model.weights(weights):
                local = self.draw(self.prompts, "evaluation", shard.rows)
                # scored while the samples for the diversity are drawn; where all ranks draw all,
                # one of them asks, as others might get other answers
                if not self.hardware.divides_passes or self.hardware.rank == 0:
                    pending.add(self._reward_input(local, shard.rows))
                local_repeated = self.draw(repeated, "diversity", repeated_shard.rows)
            # gathered as all ranks report the same scores, and rank 0 draws all samples
            scores = shard.all_gather_scores(pending.scores())
        if self.hardware.divides_passes:  # rank 0 alone has scored
            known = self.hardware.broadcast({name: s.tolist() for name, s in scores.items()})
            scores = {name: torch.tensor(values) for name, values in known.items()}
        for name in self._rewards_in(scores):
            require_scored(scores, [name], self.max_failed)
        samples = shard.all_gather(local)
        several = repeated_shard.all_gather(local_repeated)
        if several.images is None:
            return samples, scores, distinct(several.texts or [], 2)
        device = self.hardware.device
        return samples, scores, pairwise_distance(several.images, repeated_groups, device)

    def preview(self, weights: str, count: int) -> GeneratedSamples:
        """The first `count` samples of an evaluation, without scores."""
        prompts = self.prompts[:count]
        shard = self._shard(torch.arange(len(prompts)))
        with self.model.weights(weights):
            local = self.draw(prompts, "evaluation", shard.rows)
        return shard.all_gather(local)

    def draw(
        self, prompts: Sequence[Prompt], stream: str, rows: Tensor | None = None
    ) -> GeneratedSamples:
        """One sample for each prompt, or for those in `rows`."""
        texts = [prompt.text for prompt in prompts]
        return self.sampler.draw(texts, seed=self.seed, stream=stream, rows=rows)

    def _shard(self, groups: Tensor) -> Shard:
        # a reward scores an evaluation at once, so passes that must not depend on the number of
        # ranks are made by each of them
        is_whole = self.hardware.divides_passes
        return Shard(None if is_whole else local_rows(groups, self.hardware), self.hardware)

    def _groups(self) -> Tensor:
        """The group of each prompt: equal prompts are one group."""
        prompts = [prompt.text for prompt in self.prompts]
        number = {text: i for i, text in enumerate(dict.fromkeys(prompts))}
        return torch.tensor([number[text] for text in prompts])

    def _reward_input(self, drawn: GeneratedSamples, rows: Tensor | None) -> Samples:
        """The samples as rewards see them."""
        numbers = row_numbers(len(self.prompts), rows)
        prompts = index_rows(self.prompts, numbers)
        return Samples(
            prompts=[prompt.text for prompt in prompts],
            metadata=[prompt.metadata for prompt in prompts],
            groups=self._groups()[numbers],
            images=drawn.images,
            texts=drawn.texts,
            ended=drawn.ended,
        )

    def _further_rewards(self, taken: Collection[str]) -> dict[str, Reward]:
        """Those of `others` that are neither the training reward nor a part of it.

        One whose name is `taken` by a score of that has another: it may have other options.
        """
        asked = [self.reward, *getattr(self.reward, "parts", {}).values()]
        return {
            f"{name}{EVALUATION_SUFFIX}" if name in taken else name: reward
            for name, reward in self.others.items()
            if not any(reward is other for other in asked)
        }

    def _score(self, samples: Samples) -> dict[str, Tensor]:
        """The scores of the training reward and of the others."""
        scores = {} if self.reward is None else score_checked(self.reward, samples)
        others = self._further_rewards(scores)
        other_scores = {name: score_checked(other, samples) for name, other in others.items()}
        return merge_scores(others, other_scores, scores)

    def _rewards_in(self, scores: Mapping[str, Tensor]) -> dict[str, Reward]:
        """The further rewards by their names in the scores of all."""
        return self._further_rewards([n for n in self.others if n + EVALUATION_SUFFIX in scores])

    def _scores(
        self, samples: GeneratedSamples, scores: Mapping[str, Tensor], spread: float
    ) -> Scores:
        prompts = [str(prompt.text) for prompt in self.prompts]
        tags = [str(prompt.metadata["tag"]) for prompt in self.prompts if "tag" in prompt.metadata]
        own = directions(self.reward) if self.reward else {}
        # whether higher or lower is better, as far as the rewards say it
        better: dict[str, str] = {**merge_directions(self._rewards_in(scores), own)}
        better |= self.given.better if self.given else {}
        return Scores(
            prompts=prompts,
            values={name: values.double().numpy() for name, values in scores.items()},
            categories=tags if len(tags) == len(prompts) else None,
            diversity=spread,
            kl=mean_per_token(samples.kl, samples.lengths),
            texts=text_measures(samples),
            better={name: better[name] for name in better if name in scores},
            separate=self.separate,
            noises=self.noises,
        )


def evaluation_metrics(evaluation: Evaluation, place: str = "eval") -> dict[str, float]:
    """The metrics of the run's own prompts, `eval/...`, and of each set, `eval/<set>/...`.

    They are `<score>/mean`, `<score>/<category>`, `diversity`; of texts also `kl`,
    `text/<measure>`.
    """
    scores = evaluation.scores
    metrics = {f"{place}/{name}/mean": mean for name, mean in scores.means().items()}
    for name, values in scores.values.items():
        for category, mask in scores.category_masks().items():
            metrics[f"{place}/{name}/{category}"] = float(np.nanmean(values[mask]))
    if not np.isnan(scores.diversity) or scores.texts:
        metrics[f"{place}/diversity"] = scores.diversity
    metrics |= {f"{place}/text/{name}": value for name, value in scores.texts.items()}
    if not np.isnan(scores.kl):
        metrics[f"{place}/kl"] = scores.kl
    for name, of_set in evaluation.sets.items():
        metrics |= evaluation_metrics(of_set, f"{place}/{name}")
    return metrics


@dataclass(frozen=True)
class GivenEvaluation:
    """Computes `Algorithm.data_scores` of rows of the data.

    Attributes:
        seed: keys the noise that the loss of images is computed at.
        micro_batch: the items in one pass.
    """

    components: Components
    seed: int
    micro_batch: int

    @property
    def better(self) -> dict[str, str]:
        """Whether higher or lower is better of each score."""
        return {name: better for name, (_, better) in self.components.algo.data_scores.items()}

    @property
    def size(self) -> int:
        """The samples that a row gives."""
        return self.components.algo.members

    def measure(self, prompts: Sequence[Prompt], rows: Tensor | None) -> dict[str, Tensor]:
        """Each score of the `rows` of this rank, `[n]`, or its sum over tokens, with their number.

        Args:
            prompts: all rows of the data.
            rows: the numbers of this rank's; None: all.
        """
        algo, model = self.components.algo, self.components.model
        groups = torch.arange(len(prompts)).repeat_interleave(self.size)
        own = row_numbers(len(prompts), rows)
        index = (own[:, None] * self.size + torch.arange(self.size)).flatten()
        rollout = self.components.sampler.rollout(
            prompts, groups, seed=self.seed, iteration=0, rows=index
        )
        rollout = algo.normalise_update(algo.compute_advantages(rollout, ""))
        items = algo.training_items(rollout, model, seed=self.seed, iteration=0)
        found: dict[str, list[Tensor]] = defaultdict(list)
        batches = self.components.hardware.pad_micro_batches(
            items.split(self.micro_batch), lambda: next(items.split(self.micro_batch))
        )
        for batch, counts in batches:
            with torch.no_grad():
                metrics = algo.loss(model, batch).metrics
            if not counts:
                continue
            measured = {name: metrics[key].float() for name, (key, _) in algo.data_scores.items()}
            # one value a token, or one a row: a pair has at least two tokens
            if isinstance(batch, TokenBatch) and all(
                len(values) == batch.tokens.count for values in measured.values()
            ):
                tokens = batch.tokens
                measured = {name: tokens.pad(v).sum(1) for name, v in measured.items()}
                measured[TOKENS] = tokens.response_lengths.float()
            for name, values in measured.items():
                found[name].append(values.cpu())
        # of an image there is a value for each of its times
        return {name: torch.cat(v).view(len(own), -1).mean(1) for name, v in found.items()}

    @staticmethod
    def finish(measured: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The scores `[N]` of all rows; their mean is that of the loss, over tokens where it is.

        Such a row's score is its sum over tokens, divided by the mean number of tokens of a row.
        """
        counts = measured.get(TOKENS)
        scale = 1.0 if counts is None else 1.0 / counts.double().mean()
        return {name: values * scale for name, values in measured.items() if name != TOKENS}
