"""The sampler of image models."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from rlfactory.dynamics.base import Dynamics
from rlfactory.dynamics.ops.solver import Solver
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.rollout import Condition, GeneratedSamples
from rlfactory.train.sampling.base import Advance, RolloutRequest, Sampler, computed_ahead
from rlfactory.train.sampling.branch_tree import sample_tree
from rlfactory.train.sampling.trajectories import (
    RolloutSpec,
    integrate,
    integrate_ode,
    integrate_with_solver,
    sample_branched,
)
from rlfactory.utils import rng
from rlfactory.utils.pytree import index_rows, row_chunks, row_numbers, to_device
from rlfactory.utils.sizes import samples_per_start, samples_together


@dataclass(eq=False)
class ImageSampler(Sampler):
    """Integrates latents from noise to data, and decodes them.

    Attributes:
        dynamics: takes the steps of a rollout: all of them if no transitions are stored.
        sigmas: the noise levels of rollouts, `[n + 1]`.
        evaluation_sigmas: those of evaluations, which follow the ODE.
        transitions: the steps that are stored; None for none.
        kept_step: says before which step the state is stored; None: no state is.
        batch: the most samples in a pass of the network or the decoder.
        advance: called after each batch.
        evaluation_shape: the shape of latents in evaluations; by default that of rollouts.
        policy_fraction: the fraction of an evaluation's steps, at least one, that the weights in
            use take; the reference's take the others (MixGRPO's hybrid sampling).
    """

    model: ImageModel
    _: KW_ONLY
    dynamics: Dynamics | Solver
    sigmas: Tensor
    evaluation_sigmas: Tensor
    transitions: RolloutSpec | None
    batch: int
    advance: Advance
    evaluation_shape: tuple[int, ...] | None = None
    policy_fraction: float = 1.0
    kept_step: Callable[..., int] | None = None

    @cached_property
    def _on_gpu(self) -> bool:
        return self.model.device.type == "cuda"

    def _fields(self, request: RolloutRequest) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        """Latents and images, with the window's transitions."""
        conditions = self._conditions(index_rows(request.texts, request.index))
        for chunk, samples in self._samples(request, conditions):
            self.advance(len(chunk))
            yield chunk, {"condition": conditions.select(chunk), **samples}

    def _samples(
        self, request: RolloutRequest, conditions: Condition
    ) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        """`_fields` without the conditions."""
        total = len(self.sigmas) - 1
        steps, key = list(range(total)), {"seed": request.seed, "iteration": request.iteration}
        if self.transitions is not None:
            steps = self.transitions.steps_of(total, **key)
        unit = self._samples_per_start(steps)  # branches of a start are drawn together
        size = samples_together(self.batch, unit) if unit > 1 else self.batch
        chunks = [*row_chunks(len(request.index), size)]
        indices = [request.index[chunk] for chunk in chunks]
        drawn = (partial(self._noise, index, steps, **key) for index in indices)
        # keys make it safe to draw the next batch's noise while a GPU computes this one's images
        noises = computed_ahead(drawn) if self._on_gpu else (draw() for draw in drawn)
        for chunk, index, noise in zip(chunks, indices, noises, strict=True):
            condition = conditions.rows(chunk)
            with self.model.precision.sampling():
                found = self._latents(condition, index, noise, steps, **key)
            # branches may be more than fit in the decoder at once
            parts = torch.split(found["latents"], self.batch)
            found["images"] = torch.cat([self.model.decode(part) for part in parts])
            groups = request.groups[index]
            found["comparison_group"] = self._comparison_groups(groups, index, steps)
            yield chunk, found

    def _conditions(self, texts: Sequence[str]) -> Condition:
        """The encoded prompts of samples; each prompt once."""
        row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        tensors = self.model.encode([*row_of]).tensors
        return Condition(tensors, torch.tensor([row_of[text] for text in texts]))

    def _samples_per_start(self, steps: Sequence[int]) -> int:
        """How many consecutive samples start from the same noise."""
        spec = self.transitions
        if spec is None:
            return 1
        return samples_per_start(spec.branches, len(steps), spec.branch_at)

    def _noise(
        self, index: Tensor, steps: Sequence[int], seed: int, iteration: int
    ) -> tuple[Tensor, Tensor | None]:
        """On the CPU, the noise that samples start from, and that of their stochastic steps."""
        unit, spec, rows = self._samples_per_start(steps), self.transitions, index.tolist()
        starts = (index[::unit] // unit).tolist()
        normal = partial(rng.normal, pinned=self._on_gpu)
        latents = self.model.resolution.shape
        start = normal(seed, "start", [iteration], starts, latents)
        if isinstance(self.dynamics, Solver) or not self.dynamics.has_log_prob:
            return start, None
        is_per_step = spec is not None and spec.branch_at == "step"
        shape = [1 if is_per_step else len(steps), *latents]
        return start, normal(seed, "steps", [iteration], rows, shape)

    def _latents(
        self,
        condition: Condition,
        index: Tensor,
        drawn: tuple[Tensor, Tensor | None],
        steps: Sequence[int],
        seed: int,
        iteration: int,
    ) -> dict[str, Any]:
        """The final latents of samples, and what is stored of states, transitions and trees."""
        model, spec = self.model, self.transitions
        start = to_device(drawn[0], model.device)
        if isinstance(self.dynamics, Solver):
            generators = [rng.generator(seed, "solver", iteration, row) for row in index.tolist()]
            final = integrate_with_solver(
                model, condition, start, self.sigmas, self.dynamics, generators
            )
            return {"latents": final}
        noise = None if drawn[1] is None else to_device(drawn[1], model.device)
        if spec is None:
            states = dict[int, Tensor]()
            at = -1
            if self.kept_step is not None:
                at = self.kept_step(len(self.sigmas) - 1, seed=seed, iteration=iteration)
            final = integrate(
                *(model, condition, start, self.sigmas, self.dynamics, noise),
                on_state=lambda step, x: states.update({step: x} if step == at else {}),
            )
            return {"latents": final, "state": states.get(at)}
        assert noise is not None  # steps that are stored are stochastic
        spec = replace(spec, dynamics=self.dynamics, steps=steps, noise=noise, max_rows=self.batch)
        if spec.branch_at == "tree":
            final, steps_taken, tree = sample_tree(model, condition, start, self.sigmas, spec)
            tree = replace(tree, node=index[tree.node])
            return {"latents": final, "transitions": steps_taken, "tree": tree}
        final, steps_taken = sample_branched(model, condition, start, self.sigmas, spec)
        return {"latents": final, "transitions": steps_taken}

    def _comparison_groups(
        self, groups: Tensor, index: Tensor, steps: Sequence[int]
    ) -> Tensor | None:
        """Where each step has its own branches, advantages compare those of the same step only."""
        spec = self.transitions
        if spec is None or spec.branch_at != "step":
            return None
        return groups * len(steps) + index // spec.branches % len(steps)

    def draw(
        self, prompts: Sequence[str], *, seed: int, stream: str, rows: Tensor | None = None
    ) -> GeneratedSamples:
        images = []
        selected = row_numbers(len(prompts), rows)
        self.model.encode_ahead([prompts[i] for i in selected.tolist()])
        for chunk in row_chunks(len(selected), self.batch):
            index = selected[chunk].tolist()
            condition = self.model.encode([prompts[i] for i in index])
            shape = self.evaluation_shape or self.model.resolution.shape
            noise = rng.normal(seed, stream, [], index, shape, pinned=self._on_gpu)
            start = to_device(noise, self.model.device)
            with self.model.precision.sampling():
                latents = self._evaluated(condition, start)
            images.append(self.model.decode(latents))
            self.advance(len(index))
        return GeneratedSamples(images=torch.cat(images), frame_rate=self.model.frame_rate)

    def _evaluated(self, condition: Condition, start: Tensor) -> Tensor:
        """The final latents of evaluation samples."""
        model, times = self.model, self.evaluation_sigmas
        own = max(1, round(self.policy_fraction * (len(times) - 1)))
        latents = integrate_ode(model, condition, start, times[: own + 1])
        if own == len(times) - 1:
            return latents
        with model.weights(REFERENCE):
            return integrate_ode(model, condition, latents, times[own:])
