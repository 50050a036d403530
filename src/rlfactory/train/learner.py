"""The optimizer steps of an iteration: minibatches, gradient accumulation, guards, EMA."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.batch import TokenBatch, TrainingItems
from rlfactory.model.ema import Clock
from rlfactory.regularizer.base import KL
from rlfactory.rollout import Rollout
from rlfactory.train.components import (
    Components,
    Metrics,
    ProgressListener,
    TrainingBudget,
    learning_rate_factor,
)
from rlfactory.train.data_parallel import (
    gather_metrics,
    global_rollout,
    local_part,
)
from rlfactory.train.guards.failure_dump import UpdatePosition, report_gradient, report_micro_batch
from rlfactory.train.guards.nonfinite import CheckedMicroBatch, UpdateChecks, find_nonfinite
from rlfactory.train.guards.update_guard import Guard, NonFiniteReport
from rlfactory.train.metrics import MetricAccumulator
from rlfactory.train.old_policy import with_old_log_likelihoods, with_sample_ratios
from rlfactory.train.scoring.scores import check_initial_ratio
from rlfactory.train.update_batches import UpdateBatches
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.fault_injection import fault_point


@dataclass
class Learner:
    """Updates the policy, and the weight sets that follow it.

    Attributes:
        components: the live objects.
        budget: the numbers of the experiment.
        progress: shows each micro-batch.
        guard: rejects updates that are not finite.
        updates: the number of optimizer steps so far.
        has_moved: whether weights may have changed since it was last set to False.
        without_signal: the updates of this iteration that left the policy where it was, since
            neither loss nor penalty had a gradient for it.
        sync: called after each update, where all ranks are at the same point.
        before_moving: called before weights are changed.
    """

    components: Components
    budget: TrainingBudget
    progress: ProgressListener
    guard: Guard = field(default_factory=Guard)
    updates: int = 0
    has_moved: bool = False
    without_signal: int = 0
    sync: Callable[[], None] | None = None
    before_moving: Callable[[], None] = lambda: None  # noqa: E731

    @property
    def batches(self) -> UpdateBatches:
        """Makes minibatches, training items and micro-batches."""
        return UpdateBatches(self.components, self.budget)

    def learn(self, rollout: Rollout, iteration: int) -> Metrics:
        """Make `epochs` passes over the samples, in `updates_per_iteration` optimizer steps each.

        Each rank computes the gradient of its own samples. Minibatches, loss weights and metrics
        are of the samples of all ranks, so the number of ranks changes nothing.

        Args:
            rollout: this rank's samples with advantages. If it is empty on all ranks, nothing is
                learned.
            iteration: the number of the iteration, from 0.

        Returns:
            The means of the metrics over the iteration's training items.

        Raises:
            GuardError: a loss, gradient or input is not finite, and `guard` is to stop.
            TrainingError: a ratio is not 1 before the first update.
        """
        components, budget, metrics = self.components, self.budget, MetricAccumulator()
        everyone = global_rollout(rollout)
        self.guard.begin()
        self.without_signal = 0
        self._set_learning_rate(iteration)
        rollout = self._compute_old_log_probs(rollout, iteration)
        for epoch in range(budget.epochs):
            if self._reached_target_kl(metrics):
                break
            for number, minibatch in enumerate(
                self.batches.minibatches(everyone, iteration, epoch)
            ):
                if not len(minibatch):  # advantages drop samples without signal
                    self.without_signal += 1
                else:
                    update = epoch * budget.updates_per_iteration + number
                    position = UpdatePosition(iteration, update)
                    self._update_step(rollout, minibatch, position, metrics)
                    fault_point("between_updates")
                    if self.sync is not None:
                        self.sync()
        means = metrics.means()
        self._update_coefficients("iteration", means, everyone)
        if KL in means and rollout.tokens is not None:
            means["kl/sequence"] = means[KL] * everyone.mean_length
        coefficients = components.regularizer.coefficients
        means |= {name: coefficient.value for name, coefficient in coefficients.items()}
        means["optimizer/lr"] = components.optimizer.param_groups[0]["lr"]
        means["update/skipped_no_signal"] = float(self.without_signal)
        means |= self.guard.metrics()
        return means | self._update_weight_sets("iteration", iteration)

    def _compute_old_log_probs(self, rollout: Rollout, iteration: int) -> Rollout:
        """The rollout with the log-likelihoods of its samples by the policy before any update."""
        return with_old_log_likelihoods(self.batches, rollout, iteration)

    def _update_step(
        self,
        rollout: Rollout,
        minibatch: Tensor,
        position: UpdatePosition,
        metrics: MetricAccumulator,
    ) -> None:
        """One optimizer step, left out if something of it is not finite, or without a signal."""
        components, budget = self.components, self.budget
        # normalised over the minibatch of all ranks, before each takes its part
        everyone = components.algo.normalise_update(global_rollout(rollout)[minibatch])
        samples = local_part(rollout, everyone)
        batch = self.batches.items(samples, position)
        if position.update == 0:
            total = len(batch or ()) * budget.updates_per_iteration * budget.epochs
            self.progress.phase("learn", total=total)
        batch = with_sample_ratios(self.batches, batch, samples, position)
        penalised = not self._is_penalty_rounding(everyone)
        measured, problem = self._accumulate_gradient(batch, samples, position, penalised)
        # a rank with a problem makes all ranks leave the update out: their weights stay equal
        if self.guard.rejects(problem, components.hardware):
            components.hardware.discard_gradients(components.optimizer)
            return
        metrics.extend(gather_metrics(measured, components.hardware))
        if metrics.latest("ratio/first_max_dev") is None:
            remedy = "precision=fp32"
            if rollout.transitions is not None and rollout.old_log_prob is None:
                remedy = "algo.old_log_probs=recomputed, or precision=fp32"
            check_initial_ratio(metrics, components.algo.ratio_tolerance, remedy)
        norm = self._update()
        if norm is None:
            return
        problem = None
        if not math.isfinite(norm) and batch is not None:
            problem = report_gradient(norm, batch, samples, position)
        if self.guard.rejects(problem, components.hardware):
            return
        self.guard.accepted()
        metrics.add("grad/norm", norm)
        if norm == 0:
            return
        self.updates += 1
        for name, decay in self._update_weight_sets("step", position.iteration).items():
            metrics.add(name, decay)
        self._update_coefficients("step", metrics.latest_of("kl/"), everyone)

    def _is_penalty_rounding(self, samples: Rollout) -> bool:
        """Whether the penalty of an update without advantages has no gradient but rounding.

        That is so where the policy has the weights of all that it is compared with. They may give
        other bits in other micro-batches, or by a GPU's kernels.
        """
        names = self.components.regularizer.references
        advantage = samples.advantage
        if not names or advantage is None or bool(advantage.any()):
            return False
        weights, hardware = self.components.model.weights, self.components.hardware
        return not hardware.any_rank(not all(weights.is_policy(name) for name in names))

    def _accumulate_gradient(
        self,
        batch: TrainingItems | TokenBatch | None,
        samples: Rollout,
        position: UpdatePosition,
        penalised: bool,
    ) -> tuple[list[Mapping[str, Tensor]], NonFiniteReport | None]:
        """Add up the gradient of the mean loss and penalty over the micro-batches of all ranks.

        Returns:
            What was measured in each micro-batch, and a report of the first one that is not finite.
            Micro-batches after that one are still computed: other ranks wait in each of them, and
            the device is asked once, after all.
        """
        components, measured = self.components, list[Mapping[str, Tensor]]()
        hardware = components.hardware
        checks = UpdateChecks()
        total_weight = hardware.all_reduce_sum(0 if batch is None else batch.weight)
        micro_batches = self.batches.padded(batch, samples, position)
        for micro_batch, counts in micro_batches:
            loss = _checked(components.algo.loss(components.model, micro_batch), components.algo)
            penalty, divergences = components.regularizer.penalty(
                components.model, micro_batch, loss.outputs
            )
            total = samples.loss_weight * loss.value + (penalty if penalised else penalty.detach())
            # padding has a gradient of 0: its backward pass is made for the collectives in it
            hardware.backward(total * (micro_batch.weight / total_weight if counts else 0.0))
            if not counts:
                continue
            # a penalty's metric replaces the algorithm's of the same name
            metrics = loss.metrics | divergences
            # detached, so that no graph outlives its micro-batch
            measured.append(metrics | ({"loss/total": total.detach()} if divergences else {}))
            checks.add(find_nonfinite(micro_batch, loss, total), loss, metrics)
            self.progress.advance(len(micro_batch))
        return measured, self._report(checks.first_nonfinite(), batch, samples, position)

    def _report(
        self,
        found: CheckedMicroBatch | None,
        batch: TrainingItems | TokenBatch | None,
        samples: Rollout,
        position: UpdatePosition,
    ) -> NonFiniteReport | None:
        """The report of a micro-batch that is not finite, whose inputs are made once more."""
        if found is None:
            return None
        offset = 0
        for number, micro_batch in enumerate(self.batches.micro_batches(batch)):
            if number == found.number:
                where = replace(position, micro_batch=number, offset=offset)
                return report_micro_batch(
                    found.masks, micro_batch, found.loss, found.metrics, samples, where
                )
            offset += len(micro_batch)
        return None

    def _update(self) -> float | None:
        """Clip and step. Without a gradient the policy stays where it is, if a critic moves or not.

        Returns:
            The gradient's norm; None if a scaled float16 gradient overflowed. In that case, and
            where the norm is 0 or not finite, no weight has moved.
        """
        components, had_moved = self.components, self.has_moved
        weights, hardware = components.model.weights, components.hardware
        has_signal = not weights.trains_critic or hardware.any_rank(
            any(bool(gradient.any()) for gradient in weights.policy_gradients())
        )
        self.before_moving()
        self.has_moved = True  # before the step: an error in it may leave some weights changed
        if not has_signal:
            weights.clear_policy_gradients()
        parameters = list(weights.parameters.values())
        norm = hardware.step(components.optimizer, parameters, self.budget.max_grad_norm)
        if not norm or not math.isfinite(norm):
            self.has_moved = had_moved
        self.without_signal += norm == 0 or not has_signal
        return norm

    def _reached_target_kl(self, metrics: MetricAccumulator) -> bool:
        """Whether the last update found the policy further than `target_kl` from its start."""
        kl, target = metrics.latest("kl/approx"), self.budget.target_kl
        return kl is not None and target is not None and kl > target

    def _update_coefficients(
        self, moment: str, metrics: Mapping[str, float], samples: Rollout
    ) -> None:
        """Let controllers adapt the penalties' coefficients to the divergences measured."""
        self.components.regularizer.update_coefficients(
            moment, metrics, samples.mean_length, len(samples)
        )

    def _set_learning_rate(self, iteration: int) -> None:
        budget = self.budget
        factor = learning_rate_factor(
            iteration,
            iterations=budget.iterations,
            warmup=budget.warmup,
            final_scale=budget.final_scale,
            zero_first=budget.zero_first,
            schedule=budget.schedule,
        )
        for group in self.components.optimizer.param_groups:
            group["lr"] = factor * group.setdefault("peak_lr", group["lr"])

    def _update_weight_sets(self, moment: Clock, iteration: int) -> Metrics:
        """Update the averaged weight sets that are due at this moment; returns their decays."""
        decays: Metrics = {}
        for name, average in self.components.averages.items():
            decay = average.decay_at(moment, step=self.updates, iteration=iteration + 1)
            # the average is kept only where something reads it, or a checkpoint brought it
            if decay is not None and name in self.components.model.weights:
                self.before_moving()
                self.has_moved = True
                self.components.model.weights.update(name, decay)
                decays[f"{name}/decay"] = decay
        return decays


def _checked(loss: object, algo: object) -> Loss:
    """What an algorithm's `loss` returned; TrainingError where it is something else."""
    if not isinstance(loss, Loss):
        raise TrainingError(
            f"{type(algo).__name__}.loss returned a {type(loss).__name__}; it returns a Loss of"
            " rlfactory.algo.base, Loss(value, outputs, metrics)"
        )
    return loss
