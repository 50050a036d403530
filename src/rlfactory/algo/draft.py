"""Direct reward fine-tuning (DRaFT, arXiv 2309.17400), and AlignProp's random truncation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.algo.ops.reward_gradient import RewardGradient, StateBatch, StateItems
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.utils import rng
from rlfactory.utils.pytree import to_device
from rlfactory.utils.types import Faults, NonNegativeInt, PositiveInt


class Draft(RewardGradient):
    """With x_K the state before the last K sampling steps, taken as a constant,

        loss = mean of -r(decode(x_0(x_K, theta)), prompt).

    With `low_variance` n and K = 1 (DRaFT-LV) the mean is also over n further states
    `alpha_1 x_0 + sigma_1 eps` of each sample, x_0 being its own latents and eps fresh noise.

    Args:
        last_steps: K; null: all steps (DRaFT).
        truncation: fixed | random: K itself (DRaFT-K), or in each iteration a number from 1 to K,
            all equally likely (AlignProp, arXiv 2310.03739).
        low_variance: n of DRaFT-LV, 2 in the paper; 0: none.
    """

    def __init__(
        self,
        *given: Any,
        last_steps: PositiveInt | None = 1,
        truncation: Literal["fixed", "random"] = "fixed",
        low_variance: NonNegativeInt = 0,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.last_steps = last_steps
        self.truncation: Literal["fixed", "random"] = truncation
        self.low_variance = low_variance

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """K is at most the number of sampling steps; the low-variance form is of K = 1."""
        last, steps = options["last_steps"], run["schedule"]["steps"]
        if last is not None and last > steps:
            message = (
                f"is {last}, and there are {steps} sampling steps (schedule.steps); allowed is 1 to"
                f" {steps}, or null for all"
            )
            yield "last_steps", message, f"algo.last_steps={steps}"
        if options["low_variance"] and last != 1:
            message = (
                f"is {options['low_variance']}, which is for the last step alone; allowed with"
                f" last_steps={last} is 0"
            )
            yield "low_variance", message, "algo.low_variance=0"

    @staticmethod
    def items(options: Mapping[str, Any], run: Mapping[str, Any], steps: Sequence[int]) -> float:
        """Its own state, and those that are noised again."""
        return 1.0 + int(options.get("low_variance", 0))

    @staticmethod
    def passes(options: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[float, float]:
        """K passes, on average; of one the activations are held, or of all."""
        most = int(options.get("last_steps", 1) or run["schedule"]["steps"])
        mean = (1 + most) / 2 if options.get("truncation") == "random" else float(most)
        return mean, 1.0 if options.get("checkpoint", True) else float(most)

    def kept_step(self, total: int, *, seed: int, iteration: int) -> int:
        """K steps before the end."""
        count = self.last_steps or total
        if self.truncation == "random":
            generator = rng.generator(seed, "truncation", iteration)
            count = int(torch.randint(1, count + 1, (), generator=generator))
        return total - count

    def training_items(
        self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int
    ) -> StateItems:
        """The state of each sample, and `low_variance` others at the same time."""
        items = super().training_items(rollout, model, seed=seed, iteration=iteration)
        count, x0 = self.low_variance, items.x0
        if not count or items.x is None:
            return items
        index = rollout.index.tolist()
        noise = rng.normal(seed, "noise", [iteration], index, [count, *x0.shape[1:]])
        t = items.t.expand(-1, count)
        repeated = x0.repeat_interleave(count, 0)
        eps = to_device(noise, x0.device)
        noised = model.forward_process.noise(repeated, eps.flatten(0, 1), t.flatten())
        x = torch.cat([items.x, noised.view_as(eps)], 1)
        return replace(items, x=x, t=torch.cat([items.t, t], 1))

    def finish(self, model: ImageModel, batch: StateBatch) -> tuple[Tensor, Tensor]:
        """The steps that are left, each as the rollout takes it."""
        times = to_device(self.sigmas[batch.at :], batch.x.device)
        x = before = batch.x
        predictions = list[Tensor]()
        for number, (t, t_next) in enumerate(pairwise(times.unsqueeze(1).expand(-1, len(x)))):
            noise = None if batch.draws is None else batch.draws[:, number]

            def stepped(
                x: Tensor, t: Tensor = t, t_next: Tensor = t_next, noise: Tensor | None = noise
            ) -> tuple[Tensor, Tensor]:
                prediction = model.predict(x, t, batch.condition)
                return prediction, self.dynamics.step(x, prediction, t, t_next, noise=noise).next

            before = x
            prediction, x = self.run(model, stepped, x)
            predictions.append(prediction)
        if self.dynamics.decode == "x0":
            x = model.forward_process.to_x0(before, predictions[-1], times[-2].expand(len(x)))
        return predictions[0], x

    def losses(self, scores: Tensor) -> Tensor:
        """`-r`."""
        return -scores
