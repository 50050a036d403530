"""DDPO with the score function estimator (arXiv 2305.13301, eq. 4): REINFORCE on every step."""

from rlfactory.algo.advantage.base import Advantage
from rlfactory.algo.base import Algorithm, Loss, OldLogProbs
from rlfactory.algo.ops.step_replay import replay_step, replayed_log_ratio, transition_items
from rlfactory.algo.ops.surrogate import ratio_metrics
from rlfactory.batch import Batch, Outputs, TrainingItems
from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout


class DDPOScoreFunction(Algorithm[ImageModel, TrainingItems, Batch]):
    """`loss = -mean A log p` of sampled steps, valid on-policy only: one update an iteration.

    Its gradient equals that of the importance-sampled loss (`algo=ddpo`) at a ratio of 1, that is
    in the first update.

    Args:
        old_log_probs: What the ratio, which is only measured, compares with; as in GRPO.
    """

    requires = "transitions"
    on_policy = True
    ratio_tolerance = 1e-5

    def __init__(
        self,
        dynamics: Dynamics | None = None,
        advantage: Advantage | None = None,
        *,
        old_log_probs: OldLogProbs = "auto",
    ) -> None:
        self.dynamics = dynamics
        self.advantage = advantage
        self.old_log_probs: OldLogProbs = old_log_probs

    def training_items(
        self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int
    ) -> TrainingItems:
        """One item for each transition."""
        del seed, iteration
        return transition_items(rollout, model)

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """The class's formula over N replayed steps."""
        prediction, step, log_prob = replay_step(model, batch, self.dynamics)
        losses = -batch.advantage * log_prob
        log_ratio, measured = replayed_log_ratio(log_prob, batch)
        metrics = {"loss/policy": losses.detach(), **ratio_metrics(log_ratio.exp(), None)}
        metrics |= measured
        return Loss(losses.mean(), Outputs(prediction, step), metrics)
