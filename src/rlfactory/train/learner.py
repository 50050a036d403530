"""The updates of an iteration: old log-probabilities, then minibatches, gradients, steps, EMA.

`learn` is the whole; what it calls follows in the order of the calls. A minibatch is what an
optimizer step learns from. Its samples become training items, which are divided into micro-batches
of one forward and backward pass each.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from rlfactory.algo.base import checked_loss
from rlfactory.algo.ops import old_log_probs
from rlfactory.batch import TokenBatch
from rlfactory.hardware.gradient_tree import added_by_number
from rlfactory.model.ema import Clock
from rlfactory.model.weight_sets import POLICY
from rlfactory.regularizer.base import KL
from rlfactory.rollout import Rollout
from rlfactory.train.components import Components, Metrics, ProgressListener, TrainingBudget
from rlfactory.train.data_parallel import (
    gather_metrics,
    global_rollout,
    local_part,
    local_row_numbers,
)
from rlfactory.train.guards.failure_dump import UpdatePosition, report_first, report_gradient
from rlfactory.train.guards.update_guard import (
    CheckedMicroBatch,
    Guard,
    NonFiniteReport,
    find_nonfinite,
    first_nonfinite,
)
from rlfactory.train.iteration_metrics import MetricAccumulator, check_initial_ratio
from rlfactory.train.minibatches import Passes, UpdateItems, minibatches_of
from rlfactory.utils.fault_injection import fault_point


@dataclass
class Learner:
    """Updates the policy, and the weight sets that follow it.

    Attributes:
        progress: shows each micro-batch.
        guard: rejects updates that are not finite.
        updates: the number of optimizer steps so far.
        has_moved: whether weights may have changed since it was last set to False.
        without_signal: the updates of this iteration that left the policy where it was, since
            neither loss nor penalty had a gradient for it.
        sync: called after each update, where all ranks are at the same point.
    """

    components: Components
    budget: TrainingBudget
    progress: ProgressListener
    guard: Guard = field(default_factory=Guard)
    updates: int = 0
    has_moved: bool = False
    without_signal: int = 0
    sync: Callable[[], None] | None = None
    passes: Passes = field(init=False)

    def __post_init__(self) -> None:
        self.passes = Passes(self.components, self.budget)

    def learn(self, rollout: Rollout, iteration: int) -> Metrics:
        """Make `epochs` passes over the samples, in `updates_per_iteration` optimizer steps each.

        Each rank computes the gradient of its own samples. Minibatches, loss weights and metrics
        are of the samples of all ranks, so the number of ranks changes nothing.

        Args:
            rollout: this rank's samples with advantages. If it is empty on all ranks, nothing is
                learned.
            iteration: from 0.

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
        for group in components.optimizer.param_groups:
            peak = group.setdefault("peak_lr", group["lr"])
            group["lr"] = budget.learning_rate_factor(iteration) * peak
        rollout = self._compute_old_log_probs(rollout, iteration)
        for epoch in range(budget.epochs):
            kl, target = metrics.latest("kl/approx"), budget.target_kl
            if kl is not None and target is not None and kl > target:
                break
            minibatches = minibatches_of(everyone, budget, components.model, iteration, epoch)
            for number, minibatch in enumerate(minibatches):
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
        components.regularizer.update_coefficients(
            "iteration", means, everyone.mean_length, len(everyone)
        )
        if KL in means and rollout.tokens is not None:
            means["kl/sequence"] = means[KL] * everyone.mean_length
        coefficients = components.regularizer.coefficients
        means |= {name: coefficient.value for name, coefficient in coefficients.items()}
        means["optimizer/lr"] = components.optimizer.param_groups[0]["lr"]
        means["update/skipped_no_signal"] = float(self.without_signal)
        means |= self.guard.metrics()
        if components.regularizer.take_reset():
            self.has_moved = True
            components.model.weights.refer_to_policy()
        return means | self._update_weight_sets("iteration", iteration)

    def _compute_old_log_probs(self, rollout: Rollout, iteration: int) -> Rollout:
        """The rollout with the log-likelihoods of its samples by the policy before any update.

        Only ratios need them. Where sampling and training use the same weights the first update is
        on-policy, with a ratio of 1 by construction, and an algorithm may skip its samples.
        """
        algo, hardware = self.components.algo, self.components.hardware
        model: Any = self.components.model  # of images or texts, as the algorithm
        if not (algo.replays_rollout or algo.has_surrogate_likelihood):
            return rollout
        minibatches = [
            local_row_numbers(rollout, rows)
            for rows in minibatches_of(global_rollout(rollout), self.budget, model, iteration)
            if len(rows)
        ]
        if not algo.has_surrogate_likelihood:
            differ = old_log_probs.must_recompute(
                algo, model.precision, rollout, minibatches, self.budget.micro_batch
            )
            # ranks may have other numbers of samples, and all take part in the passes
            if not hardware.any_rank(differ):
                return rollout
        if self._first_is_on_policy:
            minibatches = minibatches[1:]

        def divided(samples: Rollout) -> tuple[Any, Iterator[tuple[Any, bool]]]:
            items = self.passes.items(samples, iteration)
            return items, self.passes.padded(items, samples, iteration)

        gather = hardware.gather_passes
        return old_log_probs.with_old_log_probs(algo, model, rollout, minibatches, divided, gather)

    @property
    def _first_is_on_policy(self) -> bool:
        """Whether an iteration's first update needs no old log-likelihoods: its ratio is 1."""
        algo = self.components.algo
        return algo.skip_old_log_probs and algo.behaviour == POLICY and self.budget.epochs == 1

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
        batch = self.passes.items(samples, position.iteration)
        if position.update == 0:
            ranks = components.hardware.world_size if components.hardware.divides_passes else 1
            total = len(batch or ()) // ranks * budget.updates_per_iteration * budget.epochs
            self.progress.phase("learn", total=total)
        total_weight = 0.0 if batch is None else batch.weight
        if not components.hardware.divides_passes:
            total_weight = components.hardware.all_reduce_sum(total_weight)
        if not total_weight:  # nothing to learn from on any rank, as of a tree's pruned edges
            self.without_signal += 1
            return
        batch = self._with_sample_ratios(batch, samples, position)
        penalised = not self._is_penalty_rounding(everyone)
        measured, problem = self._accumulate_gradient(
            batch, samples, position, penalised, total_weight
        )
        # a rank with a problem makes all ranks leave the update out: their weights stay equal
        if self.guard.rejects(problem, components.hardware):
            components.hardware.discard_gradients(components.optimizer)
            return
        gathered = dict(gather_metrics(measured, components.hardware))
        if "loss/total" in gathered:
            gathered["loss/total"] = gathered["loss/total"].sum()  # of the micro-batches' shares
        metrics.extend(gathered)
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
        components.regularizer.update_coefficients(
            "step", metrics.latest_of("kl/"), everyone.mean_length, len(everyone)
        )

    def _with_sample_ratios(
        self, items: UpdateItems | None, samples: Rollout, position: UpdatePosition
    ) -> UpdateItems | None:
        """The items with the ratios of whole samples, where micro-batches divide samples.

        It takes a forward pass more of each item, but in an on-policy update.
        """
        algo, hardware = self.components.algo, self.components.hardware
        if not algo.one_ratio_per_sample or isinstance(items, TokenBatch):
            return items
        if position.update == 0 and self._first_is_on_policy:
            return items
        divided = items is not None and items.is_divided_by(self.budget.micro_batch)
        # a rank without samples takes part in the passes of the others
        if not hardware.any_rank(divided and samples.old_log_prob is not None):
            return items
        model: Any = self.components.model  # of images: texts have one item a sample
        passes = self.passes.padded(items, samples, position.iteration)
        ratios = old_log_probs.sample_log_ratios(algo, model, passes, hardware.gather_passes)
        return None if items is None else replace(items, sample_log_ratio=ratios)

    def _is_penalty_rounding(self, samples: Rollout) -> bool:
        """Whether the penalty of an update without advantages has no gradient but rounding.

        That is so where the policy has the weights of all that it is compared with. They may give
        other bits in other micro-batches, or by a GPU's kernels.
        """
        names, advantage = self.components.regularizer.references, samples.advantage
        if not names or advantage is None or bool(advantage.any()):
            return False
        weights, hardware = self.components.model.weights, self.components.hardware
        return not hardware.any_rank(not all(weights.is_policy(name) for name in names))

    def _accumulate_gradient(
        self,
        batch: UpdateItems | None,
        samples: Rollout,
        position: UpdatePosition,
        penalised: bool,
        total_weight: float,
    ) -> tuple[list[Mapping[str, Tensor]], NonFiniteReport | None]:
        """Add up the gradient of the mean loss and penalty over the micro-batches of all ranks.

        Returns:
            What was measured in each micro-batch, with its share of the mean as `loss/total`, and a
            report of the first one that is not finite. Micro-batches after that one are still
            computed: other ranks wait in each of them, and the device is asked once, after all.
        """
        components, measured = self.components, list[Mapping[str, Tensor]]()
        hardware = components.hardware
        checked = list[CheckedMicroBatch]()
        parameters = [*components.model.weights.parameters.values()]
        starts = range(1) if batch is None else self.passes.starts(batch)
        with added_by_number(hardware, parameters, starts.start // starts.step) as added:
            for micro_batch, counts in self.passes.padded(batch, samples, position.iteration):
                loss = checked_loss(components.algo, components.model, micro_batch)
                penalty, divergences = components.regularizer.penalty(
                    components.model, micro_batch, loss.outputs
                )
                penalty = penalty if penalised else penalty.detach()
                total = samples.loss_weight * loss.value + penalty
                # padding has a gradient of 0: its backward pass is made for the collectives in it
                total = total * (micro_batch.weight / total_weight if counts else 0.0)
                hardware.backward(total)
                added(counts)
                if not counts:
                    continue
                # a penalty's metric replaces the algorithm's of the same name
                metrics = loss.metrics | divergences
                # detached, so that no graph outlives its micro-batch
                measured.append(metrics | ({"loss/total": total.detach()} if divergences else {}))
                masks, value = find_nonfinite(micro_batch, loss, total), loss.value.detach()
                checked.append(CheckedMicroBatch(len(checked), masks, value, metrics))
                self.progress.advance(len(micro_batch))
        if (found := first_nonfinite(checked)) is None:
            return measured, None
        micro_batches = self.passes.own(batch)  # made once more
        return measured, report_first(found, micro_batches, samples, position)

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
        self.has_moved = True  # before the step: an error in it may leave some weights changed
        if not has_signal:
            weights.clear_policy_gradients()
        parameters = list(weights.parameters.values())
        norm = hardware.step(components.optimizer, parameters, self.budget.max_grad_norm)
        if not norm or not math.isfinite(norm):
            self.has_moved = had_moved
        self.without_signal += norm == 0 or not has_signal
        return norm

    def _update_weight_sets(self, moment: Clock, iteration: int) -> Metrics:
        """Update the averaged weight sets that are due at this moment; returns their decays."""
        decays: Metrics = {}
        for name, average in self.components.averages.items():
            decay = average.decay_at(moment, step=self.updates, iteration=iteration + 1)
            # the average is kept only where something reads it, or a checkpoint brought it
            if decay is not None and name in self.components.model.weights:
                self.has_moved = True
                self.components.model.weights.update(name, decay)
                decays[f"{name}/decay"] = decay
        return decays
