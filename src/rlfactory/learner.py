"""What is done with an iteration's samples: optimiser steps, each on its own share of them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from rlfactory.algo.learning_rate import factor
from rlfactory.algo.remember import remembered
from rlfactory.batch import Batch, Items, TokenBatch
from rlfactory.dealing import everyones, own_numbers, own_of, pooled
from rlfactory.fault import fault
from rlfactory.model.averaging import Clock
from rlfactory.model.weights import POLICY
from rlfactory.parts import Budget, Metrics, Parts, Watcher
from rlfactory.regularizer.base import KL
from rlfactory.rollout import Rollout
from rlfactory.run.finite import faults, is_sound
from rlfactory.run.guards import Finding, Guard
from rlfactory.run.tally import Tally
from rlfactory.scoring import require_replay
from rlfactory.shares import shares
from rlfactory.suspicion import Place, of_gradient, of_micro_batch


def nothing() -> None:
    """There is nobody to meet."""


@dataclass
class Learner:
    """Moves the policy, and the weight sets that follow it.

    `updates` counts optimiser steps; `has_moved` says that weights may have moved since someone
    noted where things stand. `guard` judges each update before it is made. `meet` is called after
    each, where all processes are.
    """

    parts: Parts
    budget: Budget
    watcher: Watcher
    guard: Guard = field(default_factory=Guard)
    updates: int = 0
    has_moved: bool = False
    meet: Callable[[], None] = nothing

    def learn(self, rollout: Rollout, iteration: int) -> Metrics:
        """`epochs` passes of `updates_per_iteration` optimiser steps, each on its own share.

        Where no sample can teach anything, nothing is learned. Of several processes each computes
        the gradient of its own samples; shares, weights and measures are those of all.
        """
        parts, budget, tally = self.parts, self.budget, Tally()
        whole = everyones(rollout)
        self.guard.begin()
        self._set_learning_rate(iteration)
        rollout = self._remember(rollout, iteration)
        for epoch in range(budget.epochs):
            if self._far_enough(tally):
                break
            for number, share in enumerate(self._shares(whole, iteration, epoch)):
                if len(share):
                    update = epoch * budget.updates_per_iteration + number
                    self._learn_from(rollout, share, Place(iteration, update), tally)
                    fault("between_updates")
                    self.meet()
        metrics = tally.means()
        self._steer("iteration", metrics, whole)
        if KL in metrics and rollout.tokens is not None:
            metrics["kl/sequence"] = metrics[KL] * whole.mean_length
        coefficients = parts.regularizer.coefficients
        metrics |= {name: coefficient.value for name, coefficient in coefficients.items()}
        metrics["optimizer/lr"] = parts.optimizer.param_groups[0]["lr"]
        metrics |= self.guard.metrics()
        return metrics | self._follow("iteration", iteration)

    def _remember(self, rollout: Rollout, iteration: int) -> Rollout:
        """The rollout with what the policy says now of samples that it will have moved away from.

        Those of the first update are not among them: there a ratio is 1 by construction.
        """
        parts, budget, algo = self.parts, self.budget, self.parts.algo
        if not algo.surrogate:
            return rollout
        whole = everyones(rollout)
        asked = self._shares(whole, iteration, 0)
        if algo.shortcut and algo.behaviour == POLICY and budget.epochs == 1:
            asked = asked[1:]
        if not any(map(len, asked)):
            return rollout
        return remembered(
            algo,
            parts.model,
            rollout,
            own_numbers(rollout, torch.cat(list(asked))),
            micro_batch=budget.micro_batch,
            seed=budget.seed,
            iteration=iteration,
        )

    def _shares(self, whole: Rollout, iteration: int, epoch: int) -> Sequence[Tensor]:
        """As many parts of the samples as there are updates in an epoch."""
        budget, key = self.budget, [iteration, epoch] if epoch else [iteration]
        updates = budget.updates_per_iteration
        return shares(budget.shares, whole.groups, updates, seed=budget.seed, key=key)

    def _learn_from(self, rollout: Rollout, share: Tensor, place: Place, tally: Tally) -> None:
        """One optimiser step, unless what it comes from is not finite."""
        parts, budget = self.parts, self.budget
        samples = parts.algo.compared(everyones(rollout)[share])
        own = own_of(rollout, samples)
        batch = self._items(own, place)
        if place.update == 0:
            total = len(batch or ()) * budget.updates_per_iteration * budget.epochs
            self.watcher.phase("learn", total=total)
        measured, found = self._accumulate(batch, own, place)
        if self.guard.refuses(found, parts.hardware):
            parts.hardware.forget(parts.optimizer)
            return
        for metrics in pooled(measured, parts.hardware):
            tally.extend(metrics)
        if tally.latest("ratio/first_max_dev") is None:
            require_replay(tally, parts.algo.ratio_tolerance)
        norm = self._update()
        if norm is None:
            return
        found = None
        if not math.isfinite(norm) and batch is not None:
            found = of_gradient(norm, batch, own, place)
        if self.guard.refuses(found, parts.hardware):
            return
        self.guard.made()
        self.updates += 1
        tally.add("grad/norm", norm)
        for name, decay in self._follow("step", place.iteration).items():
            tally.add(name, decay)
        self._steer("step", tally.latest_of("kl/"), samples)

    def _items(self, own: Rollout, place: Place) -> Items | TokenBatch | None:
        """What learning from samples takes; None of none, as a process may have of a share."""
        if not len(own):
            return None
        algo, seed = self.parts.algo, self.budget.seed
        batch: Items | TokenBatch = algo.items(
            own, self.parts.model, seed=seed, iteration=place.iteration
        )
        return batch

    def _far_enough(self, tally: Tally) -> bool:
        """Whether the last update has moved the policy by more than `target_kl`."""
        moved, target = tally.latest("kl/approx"), self.budget.target_kl
        return moved is not None and target is not None and moved > target

    def _steer(self, moment: str, metrics: Mapping[str, float], rollout: Rollout) -> None:
        """Let the penalties' coefficients follow the divergences of their samples."""
        self.parts.regularizer.steer(moment, metrics, rollout.mean_length, len(rollout))

    def _set_learning_rate(self, iteration: int) -> None:
        budget = self.budget
        scale = factor(
            iteration,
            total=budget.iterations,
            warmup=budget.warmup,
            final_scale=budget.final_scale,
            zero_first=budget.zero_first,
        )
        for group in self.parts.optimizer.param_groups:
            group["lr"] = scale * group.setdefault("peak_lr", group["lr"])

    def _accumulate(
        self, batch: Items | TokenBatch | None, samples: Rollout, place: Place
    ) -> tuple[list[Mapping[str, Tensor]], Finding | None]:
        """The gradient of the mean loss, times its weight, and of the mean penalty; returns what
        was measured, and what was not finite first. All micro-batches are gone through even then,
        since processes wait for each other in each of them.
        """
        parts, measured = self.parts, list[Mapping[str, Tensor]]()
        found: Finding | None = None
        everything = parts.hardware.total(0 if batch is None else batch.weight)
        spare = partial(self._spare, samples, place)
        chunks, gone = parts.hardware.evened(self._chunks(batch), spare), 0
        for number, (chunk, counts) in enumerate(chunks):
            loss = parts.algo.loss(parts.model, chunk)
            penalty, divergences = parts.regularizer.penalty(parts.model, chunk, loss.outputs)
            total = samples.weight * loss.value + penalty
            parts.hardware.backward(total * (chunk.weight / everything if counts else 0.0))
            if not counts:
                continue
            # a term that has the name of one of the algorithm's metrics takes its place
            metrics = loss.metrics | divergences
            measured.append(metrics | ({"loss/total": total.detach()} if divergences else {}))
            wrong = faults(chunk, loss, total)
            if found is None and not is_sound(wrong):
                here = replace(place, micro_batch=number, offset=gone)
                found = of_micro_batch(wrong, chunk, loss, metrics, samples, here)
            self.watcher.advance(len(chunk))
            gone += len(chunk)
        return measured, found

    def _chunks(self, batch: Items | TokenBatch | None) -> Iterator[Batch | TokenBatch]:
        return iter(()) if batch is None else batch.split(self.budget.micro_batch)

    def _spare(self, samples: Rollout, place: Place) -> Batch | TokenBatch | None:
        """A micro-batch that is worth nothing, for a process that has run out of its own."""
        if samples.whole is None or samples.whole.spare is None:
            return None
        return next(self._chunks(self._items(samples.whole.spare, place)))

    def _update(self) -> float | None:
        """The gradient's norm; None where it overflowed. Where it is not finite nothing moves."""
        parts, budget, moved = self.parts, self.budget, self.has_moved
        parameters = list(parts.model.weights.parameters.values())
        self.has_moved = True  # before it does: an error may leave half a step
        norm = parts.hardware.step(parts.optimizer, parameters, budget.max_grad_norm)
        if norm is None or not math.isfinite(norm):
            self.has_moved = moved
        return norm

    def _follow(self, moment: Clock, iteration: int) -> Metrics:
        """Move each weight set whose moment this is; the decays."""
        decays: Metrics = {}
        for name, average in self.parts.averages.items():
            decay = average.due(moment, step=self.updates, iteration=iteration + 1)
            if decay is not None:
                self.has_moved = True
                self.parts.model.weights.update(name, decay)
                decays[f"{name}/decay"] = decay
        return decays
