"""What an algorithm on data shows of rows that it does not learn from: by its own loss, no second
implementation.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlfactory.algo.ops.preference import PAIR
from rlfactory.batch import TokenBatch
from rlfactory.prompts.base import Prompt
from rlfactory.train.components import Components

TOKENS = "tokens"


@dataclass(frozen=True)
class GivenEvaluation:
    """Computes `Algorithm.data_scores` of rows of the data.

    Attributes:
        components: the live objects.
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
        return PAIR if self.components.algo.learns_from_pairs else 1

    def measure(self, prompts: Sequence[Prompt], rows: Tensor | None) -> dict[str, Tensor]:
        """Each score of the `rows` of this rank, `[n]`, or its sum over tokens, with their number.

        Args:
            prompts: all rows of the data.
            rows: the numbers of this rank's; None: all.
        """
        algo, model = self.components.algo, self.components.model
        groups = torch.arange(len(prompts)).repeat_interleave(self.size)
        own = torch.arange(len(prompts)) if rows is None else rows
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
