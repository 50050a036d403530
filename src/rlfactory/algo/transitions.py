"""What the step-wise algorithms share: their items, and a step replayed by the policy."""

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.batch import Batch, Items, Taken
from rlfactory.dynamics.base import Dynamics, Step
from rlfactory.model.base import ImageModel
from rlfactory.nest import present
from rlfactory.rollout import Rollout, Transitions


def transition_items(rollout: Rollout, model: ImageModel) -> Items:
    """One item for every kept transition."""
    kept = present(rollout.transitions, "transitions")
    return Items(
        x=kept.x,
        t=kept.t,
        x0=present(rollout.latents, "latents"),
        condition=present(rollout.condition, "a condition"),
        advantage=present(rollout.advantage, "advantages").to(model.device),
        taken=Taken(kept.t_next, kept.next, kept.log_prob, kept.mean),
    )


def thinned(rollout: Rollout, fraction: float, *, seed: int, iteration: int) -> Transitions:
    """Of each sample's transitions that share, at least one, drawn anew for each sample."""
    kept = present(rollout.transitions, "transitions")
    steps = kept.t.shape[1]
    count = max(1, int(steps * fraction))
    if count == steps:
        return kept
    draws = keyed.uniform(seed, "trained", [iteration], rollout.index.tolist(), [steps])
    chosen = draws.argsort(1)[:, :count].sort(1).values.to(kept.t.device)
    rows = torch.arange(len(chosen), device=chosen.device)[:, None]
    columns: dict[str, Any] = {field.name: getattr(kept, field.name) for field in fields(kept)}
    some = {name: v[rows, chosen] for name, v in columns.items() if v is not None}
    return replace(kept, **some)


def replayed(model: ImageModel, batch: Batch, dynamics: Dynamics) -> tuple[Tensor, Step, Tensor]:
    """The policy's predictions, its steps to where the rollout went, and how likely they are."""
    taken = batch.replay()
    prediction = model.predict(batch.x, batch.t, batch.condition)
    step = dynamics.step(batch.x, prediction, batch.t, taken.t_next, next=taken.next)
    return prediction, step, present(step.log_prob, "dynamics with a log-probability")
