"""Flow-SDE with noise that falls linearly with sigma, Flow-GRPO's sampler for Wan."""

from torch import Tensor

from rlfactory.dynamics.flow_sde import FlowSDE


class LinearSDE(FlowSDE):
    """`FlowSDE` with `g = a sigma`, which is finite at `sigma = 1`.

    Flow-GRPO's code for Wan has `a = sigma_1`, the noise level after the first step; UniRL calls
    the sampler Flash-GRPO's.

    Args:
        noise_level: a.
    """

    step_form = "linear_sde"

    def _diffusion(self, sigma: Tensor, sigma_next: Tensor) -> Tensor:
        return sigma
