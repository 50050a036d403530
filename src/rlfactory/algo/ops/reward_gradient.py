"""Following a reward's gradient through the decoder and the last sampling steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlfactory.algo.base import Algorithm, Loss
from rlfactory.batch import Batch, Outputs, TrainingItems
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.utils import rng
from rlfactory.utils.pytree import require, to_device, widened


@dataclass(frozen=True)
class States:
    """Fields of samples that further steps from states and a reward read, with `[B]` of B samples,
    or `[N]` of a micro-batch.

    Attributes:
        prompts: Their texts.
        metadata: What each prompt's source says about it.
        at: The number of the sampling step that the states are before.
        draws: The noise of that step and the further ones, `[..., K, C, H, W]`; None: they are
            deterministic.
    """

    prompts: Sequence[str] = field(default=(), kw_only=True)
    metadata: Sequence[Mapping[str, Any]] = field(default=(), kw_only=True)
    at: int = field(default=0, kw_only=True)
    draws: Tensor | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class StateBatch(States, Batch):
    """A micro-batch of states."""


@dataclass(frozen=True)
class StateItems(States, TrainingItems):
    """The states of B samples, T each."""

    def split(self, size: int, starts: range | None = None) -> Iterator[StateBatch]:
        """Yield micro-batches of `size` items; the last one may have fewer.

        `starts` are some of those that `starts(size)` gives; None: all.
        """
        count, starts = self.t.shape[1], self.starts(size) if starts is None else starts
        for start, batch in zip(starts, super().split(size, starts), strict=True):
            # counted rather than read from `sample`, which would wait for the device
            rows = [item // count for item in range(start, start + len(batch))]
            yield widened(
                StateBatch,
                batch,
                prompts=[self.prompts[row] for row in rows],
                metadata=[self.metadata[row] for row in rows],
                at=self.at,
                draws=None if self.draws is None else self.draws[batch.sample],
            )


class RewardGradient(Algorithm[ImageModel, StateItems, StateBatch]):
    """An algorithm whose loss is a function of a differentiable reward's score of an image that
    depends on the policy through `finish`: the gradient passes the reward, the decoder and the
    network.

    Samples are scored as always too; these scores are reported, and nothing is compared with them.

    Args:
        checkpoint: Compute each step, and decoder and reward together, again in the backward pass
            rather than keep what they computed: the memory of one step however many there are.
            These passes are not counted as evaluations.
    """

    requires = "states"
    on_policy = True  # a second update would begin from another policy's states

    def __init__(
        self, dynamics: Any, sigmas: Tensor, reward: Any, *, checkpoint: bool = True
    ) -> None:
        self.dynamics, self.sigmas, self.reward = dynamics, sigmas, reward
        self.checkpoint = checkpoint

    def finish(self, model: ImageModel, batch: StateBatch) -> tuple[Tensor, Tensor]:
        """The policy's predictions for the items, and what they make of them.

        Returns:
            Predictions for `batch.x` and latents at t = 0, `[N, C, H, W]` with gradient.
        """
        raise NotImplementedError

    def losses(self, scores: Tensor) -> Tensor:
        """The loss of each score, `[N]`."""
        raise NotImplementedError

    def reward_names(self, main: str) -> list[str]:
        """None: the loss scores by itself."""
        return []

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """An advantage of 1 for each sample: none is compared with another."""
        return replace(rollout, advantage=torch.ones(len(rollout)))

    def training_items(
        self, rollout: Rollout, model: ImageModel, *, seed: int, iteration: int
    ) -> StateItems:
        """The state of each sample that sampling kept."""
        state = require(rollout.state, "the states before the kept step")
        at = self.kept_step(len(self.sigmas) - 1, seed=seed, iteration=iteration)
        t = self.sigmas[at].to(state.device).expand(len(state), 1)
        draws = None
        if self.dynamics.has_log_prob:  # the noise of the sampler, by the same key
            shape = [len(self.sigmas) - 1, *state.shape[1:]]
            noise = rng.normal(seed, "steps", [iteration], rollout.index.tolist(), shape)
            draws = to_device(noise[:, at:], state.device)
        return StateItems(
            x=state[:, None],
            t=t,
            x0=require(rollout.latents, "latents"),
            condition=require(rollout.condition, "a condition"),
            advantage=require(rollout.advantage, "advantages").to(state.device),
            prompts=rollout.prompts,
            metadata=rollout.metadata,
            at=at,
            draws=draws,
        )

    def loss(self, model: ImageModel, batch: StateBatch) -> Loss:
        """The mean of `losses`; `outputs.prediction` is that for the states."""
        prediction, latents = self.finish(model, batch)

        def scored(latents: Tensor) -> Tensor:
            pixels = model.decode_pixels(latents)
            scores: Tensor = self.reward.score_pixels(pixels, batch.prompts, batch.metadata)
            return scores.float()

        scores = self.run(model, scored, latents).to(latents.device)
        losses = self.losses(scores)
        return Loss(losses.mean(), Outputs(prediction), {"loss/policy": losses.detach()})

    def run(self, model: ImageModel, function: Callable[[Tensor], Any], x: Tensor) -> Any:
        """`function(x)`, computed again in the backward pass if `checkpoint` says so."""
        if not self.checkpoint:
            return function(x)
        has_run = False

        def counted_once(x: Tensor) -> Any:
            nonlocal has_run
            counted = model.evaluations.trained if has_run else None
            has_run = True
            try:
                return function(x)
            finally:  # torch leaves it by an exception once it has what it needs
                if counted is not None:
                    model.evaluations.trained = counted

        return checkpoint(counted_once, x, use_reentrant=False)
