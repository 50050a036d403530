"""DDPO with the score function estimator (arXiv 2305.13301, eq. 4): REINFORCE on every step."""

from rlfactory.advantage.base import Advantage
from rlfactory.algo.base import Algorithm, Loss
from rlfactory.algo.surrogate import ratio_metrics
from rlfactory.algo.transitions import replayed, transition_items
from rlfactory.batch import Batch, Items, Outputs
from rlfactory.dynamics.base import Dynamics
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout


class DDPOScoreFunction(Algorithm[ImageModel, Items, Batch]):
    """`loss = -mean A log p`, for samples of the policy as it is: one update an iteration.

    Its gradient is that of the importance-sampled loss at a ratio of 1, which is what the first
    update of `algo=ddpo` sees.
    """

    needs = "transitions"
    on_policy = True
    ratio_tolerance = 1e-5

    def __init__(self, dynamics: Dynamics, advantage: Advantage) -> None:
        self.dynamics = dynamics
        self.advantage = advantage

    def items(self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int) -> Items:
        """One item for every kept transition."""
        del seed, iteration
        return transition_items(rollout, model)

    def loss(self, model: ImageModel, batch: Batch) -> Loss:
        """Replay each step and make it likelier in proportion to its advantage."""
        prediction, step, log_prob = replayed(model, batch, self.dynamics)
        losses = -batch.advantage * log_prob
        ratio = (log_prob - batch.replay().log_prob).exp()
        metrics = {"loss/policy": losses.detach(), **ratio_metrics(ratio, None)}
        return Loss(losses.mean(), Outputs(prediction, step), metrics)
