"""The updates of an iteration: old log-probabilities, then minibatches, gradients, steps, EMA.

`learn` is the whole; what it calls follows in the order of the calls. A minibatch is what an
optimizer step learns from. Its samples become training items, which are divided into micro-batches
of one forward and backward pass each.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.algo.ops import old_log_probs, old_token_log_probs
from rlfactory.batch import Batch, TokenBatch, TrainingItems
from rlfactory.model.ema import Clock
from rlfactory.model.lm.shared_prompts import prompts_together
from rlfactory.model.weight_sets import POLICY
from rlfactory.regularizer.base import KL
from rlfactory.rollout import Rollout
from rlfactory.train.components import (
    Components,
    Metrics,
    ProgressListener,
    Shares,
    TrainingBudget,
    learning_rate_factor,
)
from rlfactory.train.data_parallel import (
    gather_metrics,
    global_rollout,
    local_part,
    local_row_numbers,
)
from rlfactory.train.guards.failure_dump import UpdatePosition, report_first, report_gradient
from rlfactory.train.guards.update_guard import Guard, NonFiniteReport, UpdateChecks, find_nonfinite
from rlfactory.train.metrics import MetricAccumulator, check_initial_ratio
from rlfactory.utils import rng
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.fault_injection import fault_point

UpdateItems = TrainingItems | TokenBatch


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
            for number, minibatch in enumerate(self._minibatches(everyone, iteration, epoch)):
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

    def _minibatches(self, everyone: Rollout, iteration: int, epoch: int) -> Sequence[Tensor]:
        """The row numbers in `everyone`, the samples of all ranks, of each update of an epoch.

        Texts of like length are neighbours, so that micro-batches have little padding; or those of
        a prompt, where the model then reads less.
        """
        budget, key = self.budget, [iteration, epoch] if epoch else [iteration]
        minibatches = split_minibatches(
            budget.shares, everyone.groups, budget.updates_per_iteration, seed=budget.seed, key=key
        )
        if everyone.tokens is None:
            return minibatches
        tokens = everyone.tokens
        model: Any = self.components.model  # of texts
        orders = [longest_first(rows, tokens.total_lengths) for rows in minibatches]
        if not model.shares_prompts:
            return orders
        return [prompts_together(rows, tokens, budget.micro_batch) for rows in orders]

    def _compute_old_log_probs(self, rollout: Rollout, iteration: int) -> Rollout:
        """The rollout with the log-likelihoods of its samples by the policy before any update.

        Only ratios need them. Where sampling and training use the same weights the first update is
        on-policy, with a ratio of 1 by construction, and an algorithm may skip its samples.
        """
        algo = self.components.algo
        model: Any = self.components.model  # of images or texts, as the algorithm
        if algo.requires == "forward_process" and not algo.has_surrogate_likelihood:
            return rollout
        minibatches = [
            local_row_numbers(rollout, rows)
            for rows in self._minibatches(global_rollout(rollout), iteration, 0)
            if len(rows)
        ]
        if not self._needs_old_log_probs(rollout, minibatches):
            return rollout
        if self._first_is_on_policy:
            minibatches = minibatches[1:]

        def divided(samples: Rollout) -> tuple[Any, Iterator[tuple[Any, bool]]]:
            items = self._items(samples, iteration)
            return items, self.passes(items, samples, iteration)

        if algo.requires == "tokens":
            return old_token_log_probs.with_old_token_log_probs(
                model, algo.dynamics, rollout, minibatches, divided
            )
        return old_log_probs.with_old_log_probs(algo, model, rollout, minibatches, divided)

    def _needs_old_log_probs(self, rollout: Rollout, minibatches: Sequence[Tensor]) -> bool:
        """Whether old log-likelihoods are computed, the same on all ranks."""
        algo, precision = self.components.algo, self.components.model.precision
        if algo.requires == "tokens":
            return old_token_log_probs.must_recompute_tokens(algo.old_log_probs, precision)
        if algo.has_surrogate_likelihood:
            return True
        differ = old_log_probs.must_recompute(
            algo, precision, rollout, minibatches, self.budget.micro_batch
        )
        # ranks may have other numbers of samples, and all take part in the passes
        return self.components.hardware.any_rank(differ)

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
        batch = self._items(samples, position.iteration)
        if position.update == 0:
            total = len(batch or ()) * budget.updates_per_iteration * budget.epochs
            self.progress.phase("learn", total=total)
        batch = self._with_sample_ratios(batch, samples, position)
        penalised = not self._is_penalty_rounding(everyone)
        measured, problem = self._accumulate_gradient(batch, samples, position, penalised)
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
        self._update_coefficients("step", metrics.latest_of("kl/"), everyone)

    def _items(self, samples: Rollout, iteration: int) -> UpdateItems | None:
        """The training items of samples; None where this rank has no sample of the minibatch."""
        if not len(samples):
            return None
        components, seed = self.components, self.budget.seed
        items: UpdateItems = components.algo.training_items(
            samples, components.model, seed=seed, iteration=iteration
        )
        return items

    def _micro_batches(self, items: UpdateItems | None) -> Iterator[Batch | TokenBatch]:
        """The micro-batches of this rank's items."""
        return iter(()) if items is None else items.split(self.budget.micro_batch)

    def passes(
        self, items: UpdateItems | None, samples: Rollout, iteration: int
    ) -> Iterator[tuple[Any, bool]]:
        """This rank's micro-batches; and padding, with `False`, where another rank has more."""

        def padding() -> Batch | TokenBatch | None:
            spare = None if samples.all_ranks is None else samples.all_ranks.padding
            if spare is None:
                return None
            return next(self._micro_batches(self._items(spare, iteration)))

        hardware = self.components.hardware
        return hardware.pad_micro_batches(self._micro_batches(items), padding)

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
        passes = self.passes(items, samples, position.iteration)
        ratios = old_log_probs.sample_log_ratios(algo, model, passes)
        return None if items is None else replace(items, sample_log_ratio=ratios)

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
        self, batch: UpdateItems | None, samples: Rollout, position: UpdatePosition, penalised: bool
    ) -> tuple[list[Mapping[str, Tensor]], NonFiniteReport | None]:
        """Add up the gradient of the mean loss and penalty over the micro-batches of all ranks.

        Returns:
            What was measured in each micro-batch, with its share of the mean as `loss/total`, and a
            report of the first one that is not finite. Micro-batches after that one are still
            computed: other ranks wait in each of them, and the device is asked once, after all.
        """
        components, measured = self.components, list[Mapping[str, Tensor]]()
        hardware = components.hardware
        checks = UpdateChecks()
        total_weight = hardware.all_reduce_sum(0 if batch is None else batch.weight)
        for micro_batch, counts in self.passes(batch, samples, position.iteration):
            loss = _checked(components.algo.loss(components.model, micro_batch), components.algo)
            penalty, divergences = components.regularizer.penalty(
                components.model, micro_batch, loss.outputs
            )
            total = samples.loss_weight * loss.value + (penalty if penalised else penalty.detach())
            # padding has a gradient of 0: its backward pass is made for the collectives in it
            total = total * (micro_batch.weight / total_weight if counts else 0.0)
            hardware.backward(total)
            if not counts:
                continue
            # a penalty's metric replaces the algorithm's of the same name
            metrics = loss.metrics | divergences
            # detached, so that no graph outlives its micro-batch
            measured.append(metrics | ({"loss/total": total.detach()} if divergences else {}))
            checks.add(find_nonfinite(micro_batch, loss, total), loss, metrics)
            self.progress.advance(len(micro_batch))
        if (found := checks.first_nonfinite()) is None:
            return measured, None
        micro_batches = self._micro_batches(batch)  # made once more
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


def split_minibatches(
    kind: Shares, groups: Tensor, updates: int, *, seed: int, key: Sequence[int]
) -> Sequence[Tensor]:
    """Split an epoch's samples into minibatches, in random order.

    Args:
        kind: `random` shuffles all samples; `even` takes equally many samples (up to one) of each
            group, so that ranks, which own complete groups, have equally much work in each update;
            `groups` takes whole groups, equally many (up to one), and of neighbouring groups, which
            a rank owns, equally many too.
        groups: `[B]`, the group of each sample.
        updates: the number of minibatches.
        seed: the seed of the run.
        key: the rest of the random key: the iteration, and the epoch from the second on.

    Returns:
        The row numbers of each minibatch; each sample is in one of them.
    """
    generator = rng.generator(seed, "order", *key)
    order = torch.randperm(len(groups), generator=generator)
    if kind == "random":
        return order.tensor_split(updates)
    if kind == "groups":
        numbers = torch.unique(groups)
        # of every `updates` neighbours one for each update; at least once, as there may be no group
        starts = range(0, max(len(numbers), 1), updates)
        turns = [torch.randperm(updates, generator=generator) for _ in starts]
        dealt = torch.cat(turns)[torch.searchsorted(numbers, groups)]
        return [order[dealt[order] == k] for k in range(updates)]
    by_group = order[groups[order].argsort(stable=True)]
    # minibatch k takes rows k, k + updates, ... of the samples sorted by group, shuffled again so
    # that a micro-batch does not hold one group only
    shuffled = torch.randperm(len(groups), generator=generator)
    return [by_group[shuffled[shuffled % updates == k]] for k in range(updates)]


def longest_first(rows: Tensor, lengths: Tensor) -> Tensor:
    """The row numbers of a minibatch by falling length, those of equal length in their order.

    A micro-batch is as wide as its longest text, and the gradient of a minibatch does not depend
    on how it is divided. The widest one comes first: if it fits into memory, all do.

    Args:
        rows: row numbers.
        lengths: of all rows, on the CPU.
    """
    return rows[lengths[rows].argsort(descending=True, stable=True)]
