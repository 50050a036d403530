"""DDPO with the score function estimator (arXiv 2305.13301, eq. 4): REINFORCE on every step."""

from torch import Tensor

from rlfactory.algo.ops.step_replay import StepAlgorithm, StepLosses
from rlfactory.algo.ops.surrogate import ratio_metrics
from rlfactory.batch import Batch
from rlfactory.dynamics.base import Step
from rlfactory.utils.pytree import require


class DDPOScoreFunction(StepAlgorithm):
    """`loss = -mean A log p` of sampled steps, valid on-policy only: one update an iteration.

    Its gradient equals that of the importance-sampled loss (`algo=ddpo`) at a ratio of 1, that is
    in the first update.

    Args:
        old_log_probs: What the ratio, which is only measured, compares with; as in GRPO.
    """

    on_policy = True
    ratio_tolerance = 1e-5

    def step_losses(self, step: Step, log_ratio: Tensor, batch: Batch) -> StepLosses:
        log_prob = require(step.log_prob, "dynamics with a log-probability")
        return -batch.advantage * log_prob, ratio_metrics(log_ratio.exp(), None)
