"""Pictures from an image model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.dynamics.base import Dynamics
from rlfactory.dynamics.solver import Solver
from rlfactory.dynamics.window import Window
from rlfactory.model.base import ImageModel
from rlfactory.model.sampling import Drawing, branch, branch_at_each, follow, solve, wander
from rlfactory.nest import chunks
from rlfactory.prompts.base import Prompt
from rlfactory.rollout import Condition, Rollout, Transitions
from rlfactory.sampler.base import Advance, Drawn, Sampler, numbers


@dataclass(frozen=True)
class Kept:
    """What a step-wise algorithm asks of a rollout: the `window` of steps that it learns from.

    `branches` samples share a start and what precedes the window; with `branch_at` `step` each
    step of the window has its own. `mean`: whether the steps' means are kept; `dtype` is that of
    the stored states; `tail` the share of the steps after the window that is taken.
    """

    window: Window
    branches: int = 1
    branch_at: Literal["window", "step"] = "window"
    mean: bool = False
    dtype: torch.dtype = torch.float32
    tail: float | None = None


class ImageSampler(Sampler):
    """Integrates from noise, with the steps that are `kept`, if any, drawn at random.

    Where none are kept, `dynamics` takes every step. `sigmas` is the schedule of rollouts,
    `evaluation_sigmas` and `evaluation_shape` (of latents, by default the same) that of everything
    else, which follows the ODE.
    """

    def __init__(
        self,
        model: ImageModel,
        *,
        dynamics: Dynamics | Solver,
        sigmas: Tensor,
        evaluation_sigmas: Tensor,
        kept: Kept | None,
        batch: int,
        advance: Advance,
        evaluation_shape: tuple[int, int, int] | None = None,
    ) -> None:
        self.model = model
        self._shape = model.resolution.shape
        self.evaluation_shape = evaluation_shape or self._shape
        self.dynamics = dynamics
        self.sigmas, self.evaluation_sigmas = sigmas, evaluation_sigmas
        self.kept = kept
        self.batch = batch
        self.advance = advance

    def batches(
        self,
        prompts: Sequence[Prompt],
        groups: Tensor,
        *,
        seed: int,
        iteration: int,
        rows: Tensor | None = None,
    ) -> Iterator[Rollout]:
        """Latents, pictures, and the window's transitions."""
        total = len(self.sigmas) - 1
        steps = list(range(total))
        if self.kept is not None:
            steps = self.kept.window.steps(total, seed=seed, iteration=iteration)
        unit = self._alike(steps)
        drawn = numbers(len(groups), rows)
        for part_of in chunks(len(drawn), max(self.batch // unit, 1) * unit):
            index = drawn[part_of]
            with self.model.precision.sampling():
                part = self._part(prompts, groups[index], index, steps, seed, iteration)
            yield part

    def _alike(self, steps: Sequence[int]) -> int:
        """How many samples in a row have the same start."""
        if self.kept is None:
            return 1
        return self.kept.branches * (len(steps) if self.kept.branch_at == "step" else 1)

    def _part(
        self,
        prompts: Sequence[Prompt],
        groups: Tensor,
        index: Tensor,
        steps: Sequence[int],
        seed: int,
        iteration: int,
    ) -> Rollout:
        own = [prompts[group] for group in groups.tolist()]
        condition = self.model.encode([prompt.text for prompt in own])
        latents, transitions = self._latents(condition, index, steps, seed, iteration)
        images = self.model.decode(latents)
        self.advance(len(own))
        return Rollout(
            prompts=[prompt.text for prompt in own],
            metadata=[prompt.metadata for prompt in own],
            groups=groups,
            index=index,
            condition=condition,
            latents=latents,
            images=images,
            transitions=transitions,
            peers=self._peers(groups, index, steps),
        )

    def _latents(
        self, condition: Condition, index: Tensor, steps: Sequence[int], seed: int, iteration: int
    ) -> tuple[Tensor, Transitions | None]:
        model, rows, key = self.model, index.tolist(), [iteration]
        alike = self._alike(steps)
        starts = (index[::alike] // alike).tolist()
        start = keyed.normal(seed, "start", key, starts, self._shape).to(model.device)
        if isinstance(self.dynamics, Solver):
            generators = [keyed.generator(seed, "solver", iteration, row) for row in rows]
            return solve(model, condition, start, self.sigmas, self.dynamics, generators), None
        if not self.dynamics.log_prob:
            return follow(model, condition, start, self.sigmas), None
        each = self.kept is not None and self.kept.branch_at == "step"
        shape = [1 if each else len(steps), *self._shape]
        noise = keyed.normal(seed, "steps", key, rows, shape).to(model.device)
        if self.kept is None:
            return wander(model, condition, start, self.sigmas, self.dynamics, noise), None
        drawing = Drawing(
            self.dynamics, steps, noise, self.kept.mean, self.kept.dtype, self.kept.tail
        )
        grow = branch_at_each if each else branch
        return grow(model, condition, start, self.sigmas, drawing, self.kept.branches)

    def _peers(self, groups: Tensor, index: Tensor, steps: Sequence[int]) -> Tensor | None:
        """With branches of their own, the samples of a step compare among themselves alone."""
        if self.kept is None or self.kept.branch_at == "window":
            return None
        return groups * len(steps) + index // self.kept.branches % len(steps)

    def draw(
        self, prompts: Sequence[str], *, seed: int, stream: str, rows: Tensor | None = None
    ) -> Drawn:
        """By the ODE, from noise keyed by a prompt's number."""
        images = []
        drawn = numbers(len(prompts), rows)
        for part in chunks(len(drawn), self.batch):
            index = drawn[part].tolist()
            condition = self.model.encode([prompts[i] for i in index])
            noise = keyed.normal(seed, stream, [], index, self.evaluation_shape)
            start = noise.to(self.model.device)
            with self.model.precision.sampling():
                latents = follow(self.model, condition, start, self.evaluation_sigmas)
            images.append(self.model.decode(latents))
            self.advance(len(index))
        return Drawn(images=torch.cat(images))
