"""DDPO with the score function estimator (arXiv 2305.13301, eq. 4): REINFORCE on every step."""

from rlfactory.algo.base import Loss
from rlfactory.algo.ops.step_replay import StepAlgorithm, replay_step, replayed_log_ratio
from rlfactory.algo.ops.surrogate import ratio_metrics
from rlfactory.batch import Batch, Outputs
from rlfactory.model.base import ImageModel


class DDPOScoreFunction(StepAlgorithm):
    """`loss = -mean A log p` of sampled steps, valid on-policy only: one update an iteration.

    Its gradient equals that of the importance-sampled loss (`algo=ddpo`) at a ratio of 1, that is
    in the first update.

    Args:
        old_log_probs: What the ratio, which is only measured, compares with; as in GRPO.
    """

    on_policy = True
    ratio_tolerance = 1e-5

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        prediction, step, log_prob = replay_step(model, batch, self.dynamics)
        losses = -batch.advantage * log_prob
        log_ratio, measured = replayed_log_ratio(log_prob, batch)
        metrics = {"loss/policy": losses.detach(), **ratio_metrics(log_ratio.exp(), None)}
        metrics |= measured
        return Loss(losses.mean(), Outputs(prediction, step), metrics)
