"""Pictures from an image model."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.dynamics.base import Dynamics
from rlfactory.dynamics.window import Window
from rlfactory.model.base import ImageModel
from rlfactory.model.sampling import sample
from rlfactory.prompts.base import Prompt
from rlfactory.rollout import Rollout, chunks, join
from rlfactory.sampler.base import Advance, Drawn, Sampler


class ImageSampler(Sampler):
    """Integrates from noise; in rollouts the steps inside the `window`, if any, are stochastic.

    `sigmas` and `evaluation_sigmas` are the schedules of rollouts and of everything else.
    """

    def __init__(
        self,
        model: ImageModel,
        *,
        dynamics: Dynamics,
        sigmas: Tensor,
        evaluation_sigmas: Tensor,
        window: Window | None,
        start_noise: Literal["own", "group"],
        batch: int,
        advance: Advance,
    ) -> None:
        self.model = model
        self.dynamics = dynamics
        self.sigmas, self.evaluation_sigmas = sigmas, evaluation_sigmas
        self.window = window
        self.start_noise = start_noise
        self.batch = batch
        self.advance = advance

    def rollout(
        self, prompts: Sequence[Prompt], groups: Tensor, *, seed: int, iteration: int
    ) -> Rollout:
        """Latents, pictures, and the window's transitions."""
        steps: list[int] = []
        if self.window is not None:
            steps = self.window.steps(len(self.sigmas) - 1, seed=seed, iteration=iteration)
        return join(
            [
                self._part(
                    [prompts[g] for g in groups[rows]], groups[rows], rows, steps, seed, iteration
                )
                for rows in chunks(len(groups), self.batch)
            ]
        )

    def _part(
        self,
        prompts: Sequence[Prompt],
        groups: Tensor,
        index: Tensor,
        steps: list[int],
        seed: int,
        iteration: int,
    ) -> Rollout:
        model, rows, key = self.model, index.tolist(), [iteration]
        condition = model.encode([prompt.text for prompt in prompts])
        starts = groups.tolist() if self.start_noise == "group" else rows
        start = keyed.normal(seed, "start", key, starts, model.latent_shape).to(model.device)
        noise = None
        if steps:
            shape = [len(steps), *model.latent_shape]
            noise = keyed.normal(seed, "steps", key, rows, shape).to(model.device)
        latents, transitions = sample(
            model,
            condition,
            start,
            self.sigmas,
            dynamics=self.dynamics,
            window=steps,
            step_noise=noise,
        )
        images = model.decode(latents)
        self.advance(len(rows))
        return Rollout(
            prompts=[prompt.text for prompt in prompts],
            metadata=[prompt.metadata for prompt in prompts],
            groups=groups,
            index=index,
            condition=condition,
            latents=latents,
            images=images,
            transitions=transitions,
        )

    def draw(self, prompts: Sequence[str], *, seed: int, stream: str) -> Drawn:
        """By the ODE, from noise keyed by a prompt's number."""
        images = []
        for rows in chunks(len(prompts), self.batch):
            index = rows.tolist()
            condition = self.model.encode([prompts[i] for i in index])
            noise = keyed.normal(seed, stream, [], index, self.model.latent_shape)
            start = noise.to(self.model.device)
            latents, _ = sample(self.model, condition, start, self.evaluation_sigmas)
            images.append(self.model.decode(latents))
            self.advance(len(index))
        return Drawn(images=torch.cat(images))
