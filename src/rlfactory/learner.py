"""What is done with an iteration's samples: optimiser steps, each on its own share of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlfactory import keyed
from rlfactory.algo.learning_rate import factor
from rlfactory.algo.remember import remembered
from rlfactory.batch import Items, TokenBatch
from rlfactory.fault import fault
from rlfactory.model.averaging import Clock
from rlfactory.model.weights import POLICY
from rlfactory.parts import Budget, Metrics, Parts, Watcher
from rlfactory.regularizer.base import KL
from rlfactory.rollout import Rollout
from rlfactory.run.tally import Tally
from rlfactory.scoring import TrainingError, require_replay


@dataclass
class Learner:
    """Moves the policy, and the weight sets that follow it.

    `updates` counts optimiser steps; `has_moved` says that there was learning since someone noted
    where things stand.
    """

    parts: Parts
    budget: Budget
    watcher: Watcher
    updates: int = 0
    has_moved: bool = False

    def learn(self, rollout: Rollout, iteration: int) -> Metrics:
        """`epochs` passes of `updates_per_iteration` optimiser steps, each on its own share.

        Where no sample can teach anything, nothing is learned.
        """
        parts, budget, tally = self.parts, self.budget, Tally()
        self.has_moved = True
        self._set_learning_rate(iteration)
        rollout = self._remember(rollout, iteration)
        for epoch in range(budget.epochs):
            if self._far_enough(tally):
                break
            for share in self._shares(len(rollout), iteration, epoch):
                if len(share):
                    self._learn_from(rollout[share], iteration, tally)
                    fault("between_updates")
        metrics = tally.means()
        self._steer("iteration", metrics, rollout)
        if KL in metrics and rollout.tokens is not None:
            metrics["kl/sequence"] = metrics[KL] * rollout.mean_length
        coefficients = parts.regularizer.coefficients
        metrics |= {name: coefficient.value for name, coefficient in coefficients.items()}
        metrics["optimizer/lr"] = parts.optimizer.param_groups[0]["lr"]
        return metrics | self._follow("iteration", iteration)

    def _remember(self, rollout: Rollout, iteration: int) -> Rollout:
        """The rollout with what the policy says now of samples that it will have moved away from.

        Those of the first update are not among them: there a ratio is 1 by construction.
        """
        parts, budget, algo = self.parts, self.budget, self.parts.algo
        if not algo.surrogate:
            return rollout
        shares = self._shares(len(rollout), iteration, 0)
        if algo.shortcut and algo.behaviour == POLICY and budget.epochs == 1:
            shares = shares[1:]
        return remembered(
            algo,
            parts.model,
            rollout,
            shares,
            micro_batch=budget.micro_batch,
            seed=budget.seed,
            iteration=iteration,
        )

    def _shares(self, count: int, iteration: int, epoch: int) -> Sequence[Tensor]:
        """The samples in random order, as many parts as there are updates in an epoch."""
        key = [iteration, epoch] if epoch else [iteration]
        order = torch.randperm(count, generator=keyed.generator(self.budget.seed, "order", *key))
        return order.tensor_split(self.budget.updates_per_iteration)

    def _learn_from(self, samples: Rollout, iteration: int, tally: Tally) -> None:
        """One optimiser step."""
        parts, budget = self.parts, self.budget
        is_first = len(tally) == 0
        batch = parts.algo.items(samples, parts.model, seed=budget.seed, iteration=iteration)
        if is_first:
            total = len(batch) * budget.updates_per_iteration * budget.epochs
            self.watcher.phase("learn", total=total)
        self._accumulate(batch, samples.weight, tally)
        if is_first:
            require_replay(tally, parts.algo.ratio_tolerance)
        norm = self._update()
        if norm is None:
            return
        tally.add("grad/norm", norm)
        for name, decay in self._follow("step", iteration).items():
            tally.add(name, decay)
        self._steer("step", tally.latest_of("kl/"), samples)

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

    def _accumulate(self, batch: Items | TokenBatch, weight: float, tally: Tally) -> None:
        """The gradient of the mean loss, times `weight`, and of the mean penalty."""
        parts = self.parts
        for chunk in batch.split(self.budget.micro_batch):
            loss = parts.algo.loss(parts.model, chunk)
            penalty, divergences = parts.regularizer.penalty(parts.model, chunk, loss.outputs)
            total = weight * loss.value + penalty
            if not torch.isfinite(total):
                raise TrainingError(f"the loss is {total.item()}; try a smaller optimizer.lr")
            parts.hardware.backward(total * (chunk.weight / batch.weight))
            # a term that has the name of one of the algorithm's metrics takes its place
            tally.extend(loss.metrics | divergences)
            if divergences:
                tally.extend({"loss/total": total.detach()})
            self.watcher.advance(len(chunk))

    def _update(self) -> float | None:
        """The gradient's norm; None where it overflowed and nothing has moved."""
        parts, budget = self.parts, self.budget
        parameters = list(parts.model.weights.parameters.values())
        norm = parts.hardware.step(parts.optimizer, parameters, budget.max_grad_norm)
        if norm is None:
            return None
        if not math.isfinite(norm):
            raise TrainingError(f"the gradient's norm is {norm}; try a smaller optimizer.lr")
        self.updates += 1
        return norm

    def _follow(self, moment: Clock, iteration: int) -> Metrics:
        """Move each weight set whose moment this is; the decays."""
        decays: Metrics = {}
        for name, average in self.parts.averages.items():
            decay = average.due(moment, step=self.updates, iteration=iteration + 1)
            if decay is not None:
                self.parts.model.weights.update(name, decay)
                decays[f"{name}/decay"] = decay
        return decays
