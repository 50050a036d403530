"""Drawing samples from an image model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics
from rlfactory.dynamics.ode import ODE
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Condition, Transitions


@torch.no_grad()
def sample(
    model: ImageModel,
    condition: Condition,
    noise: Tensor,
    sigmas: Tensor,
    *,
    dynamics: Dynamics | None = None,
    window: Sequence[int] = (),
    step_noise: Tensor | None = None,
) -> tuple[Tensor, Transitions | None]:
    """Final latents `[B, C, h, w]` from starting `noise`, and the steps inside `window`.

    Steps outside the window follow the ODE. `step_noise` is `[B, len(window), C, h, w]`, `sigmas`
    `[steps + 1]`.
    """
    if window and (dynamics is None or step_noise is None):
        raise ValueError("the steps of a window need `dynamics` and `step_noise`")
    x, kept, ode = noise, [], ODE(model.forward_process)
    for i, (sigma, sigma_next) in enumerate(zip(sigmas[:-1], sigmas[1:], strict=True)):
        t, t_next = sigma.expand(len(x)).to(x.device), sigma_next.expand(len(x)).to(x.device)
        v = model.predict(x, t, condition)
        if i not in window or dynamics is None or step_noise is None:
            x = ode.step(x, v, t, t_next).next
            continue
        step = dynamics.step(x, v, t, t_next, noise=step_noise[:, list(window).index(i)])
        # replayed from what is stored, so that the log-probability is that of the stored point
        step = dynamics.step(x, v, t, t_next, next=step.next)
        if step.log_prob is not None:
            kept.append((t, t_next, x, step.next, step.log_prob))
        x = step.next
    return x, _stack(kept)


def _stack(kept: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]) -> Transitions | None:
    if not kept:
        return None
    return Transitions(*(torch.stack(column, dim=1) for column in zip(*kept, strict=True)))
