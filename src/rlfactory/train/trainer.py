"""The training loop: sample, score, compute advantages, learn."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from rlfactory.model.base import ImageModel, NFECounter, evaluation_metrics
from rlfactory.regularizer.base import KL
from rlfactory.reward.base import Samples, score_checked
from rlfactory.rollout import GlobalRollout, Rollout
from rlfactory.train.components import Components, Metrics, ProgressListener, TrainingBudget
from rlfactory.train.data_parallel import (
    attach_global,
    gather_rollout,
    gather_whole,
    image_metrics,
    local_rows,
)
from rlfactory.train.guards.update_guard import Guard
from rlfactory.train.iteration_metrics import (
    drop_unscored,
    reward_metrics,
    samples_of,
    zero_variance_groups,
)
from rlfactory.train.learner import Learner
from rlfactory.train.resampling import SEED_STRIDE, keep_varied, renumbered, resample
from rlfactory.utils.fault_injection import fault_point
from rlfactory.utils.pytree import concat, require

log = logging.getLogger(__name__)


@dataclass
class Trainer:
    """Runs the training loop over its components.

    Attributes:
        progress: shows each phase and step; it may raise, to stop the run.
        guard: rejects updates that are not finite.
        sync: called where all ranks are at the same point of the loop (after each batch of samples
            and each update); it may raise, on all of them.
        evaluations: forward passes (NFE) of all ranks in training so far.
        seconds: training time of earlier processes of this run.
        ended: why the run ends before its last iteration; None while it does not.
    """

    components: Components
    budget: TrainingBudget
    progress: ProgressListener
    evaluations: int = 0
    seconds: float = 0.0
    ended: str | None = None
    guard: Guard = field(default_factory=Guard)
    sync: Callable[[], None] | None = None
    learner: Learner = field(init=False)
    _seconds: dict[str, float] = field(default_factory=dict)
    _peaks: dict[str, float] = field(default_factory=dict)
    _started: float | None = None

    def __post_init__(self) -> None:
        self.learner = Learner(
            self.components, self.budget, self.progress, self.guard, sync=self.sync
        )

    def run(
        self,
        after_iteration: Callable[[int, Metrics, Rollout], None],
        begin: int = 0,
        should_stop: Callable[[], bool] | None = None,
        before_learning: Callable[[], None] | None = None,
    ) -> None:
        """Run the iterations from `begin` on.

        Stops early after `max_minutes` or at a threshold of `stop`, which sets `ended`.

        Args:
            after_iteration: called with each iteration's number, from 0, its metrics and samples.
            begin: the first iteration.
            should_stop: asked between two iterations.
            before_learning: called in each iteration before weights begin to move.
        """
        self._started = perf_counter()
        for iteration in range(begin, self.budget.iterations):
            if self.ended is not None or (should_stop is not None and should_stop()):
                break
            rollout, metrics = self._iterate(iteration, before_learning)
            # before the iteration is reported, so that a checkpoint saved then knows of it
            self.ended = self._reason_to_stop(metrics)
            if self.ended is not None:
                log.info("stopped after iteration %d: %s", iteration + 1, self.ended)
            after_iteration(iteration, metrics, rollout)

    def _iterate(
        self, iteration: int, before_learning: Callable[[], None] | None
    ) -> tuple[Rollout, Metrics]:
        """One iteration."""
        components, hardware = self.components, self.components.hardware
        self._peaks.clear()
        self._note_peak("evaluate")  # whatever took place since the last iteration
        scoring = components.scorer.begin(self._score_samples, self.budget.group_size)
        begun = perf_counter()
        with scoring as pending:
            # forward passes for evaluation prompts are not part of the iteration
            components.model.evaluations.read_and_reset()
            with self._measured("sample"):
                rollout = self.sample(iteration, pending.add)
            count, sampling_nfe = int(hardware.all_reduce_sum(len(rollout))), self._take_nfe()
            with self._measured("score"):
                rollout, metrics = self.score(rollout, pending.scores, iteration)
            with self._measured("learn"):
                if before_learning is not None:
                    before_learning()
                metrics |= self.learner.learn(rollout, iteration)
        self._seconds["iteration"] = perf_counter() - begun
        if rollout.images is not None:
            metrics |= evaluation_metrics(sampling_nfe, self._take_nfe(), count)
            metrics["nfe/total"] = self.evaluations
        metrics |= {f"time/{name}": spent for name, spent in self._seconds.items()}
        metrics["time/score_hidden"] = pending.overlapped_seconds
        peaks = {"memory/peak_gb": hardware.peak_memory()} | self._peaks
        metrics |= {name: hardware.all_reduce_max(gib) for name, gib in peaks.items()}
        return rollout, metrics

    def sample(
        self, iteration: int, on_batch: Callable[[Samples], None] | None = None, number: int = 0
    ) -> Rollout:
        """Draw this rank's samples of an iteration from the behaviour policy.

        Over all ranks there are `group_size` samples of each of `prompts_per_iteration` prompts.
        `on_batch` gets each batch as soon as it is drawn, so that it can be scored meanwhile.
        `number` is that of the round of sampling within the iteration, see `resampling.py`.
        """
        components, budget = self.components, self.budget
        seed = budget.seed + number * SEED_STRIDE
        prompts = components.prompts.draw(
            budget.prompts_per_iteration, seed=seed, iteration=iteration
        )
        groups = torch.arange(len(prompts)).repeat_interleave(budget.group_size)
        rows = local_rows(groups, components.hardware)
        self.progress.phase("sample", total=len(groups if rows is None else rows))
        batches, model, algo = [], components.model, components.algo
        # adapters may be merged where no step of a rollout is replayed
        merged: AbstractContextManager[None] = nullcontext()
        if isinstance(model, ImageModel) and not algo.replays_rollout:
            merged = model.merged_adapters()
        with model.weights(algo.behaviour), merged:
            for batch in components.sampler.batches(
                prompts, groups, seed=seed, iteration=iteration, rows=rows
            ):
                fault_point("sampling")
                if self.sync is not None:
                    self.sync()  # all ranks are here: each has equally many batches
                batches.append(batch)
                if on_batch is not None:
                    on_batch(samples_of(batch))
        rollout: Rollout = concat(batches)
        if not number:
            return rollout
        return renumbered(rollout, number, budget.prompts_per_iteration, budget.group_size)

    def score(
        self,
        rollout: Rollout,
        wait_for_scores: Callable[[], dict[str, Tensor]] | None = None,
        iteration: int = 0,
    ) -> tuple[Rollout, Metrics]:
        """Compute rewards and advantages; samples without a score are dropped.

        Statistics and advantages are of the samples of all ranks, and every rank computes the same.

        Args:
            wait_for_scores: returns scores that were begun while sampling; None: score now.
            iteration: for further rounds of sampling.

        Returns:
            This rank's samples, with the light fields of all ranks' attached; and metrics.
        """
        components, hardware = self.components, self.components.hardware
        self.progress.phase("score", total=len(rollout))
        score = wait_for_scores or partial(self._score_samples, samples_of(rollout))
        names = components.algo.reward_names(components.reward.main)
        drawn = replace(rollout, rewards=score())
        local, resampled = self._resampled(drawn, iteration, names)
        if hardware.divides_passes:
            local = gather_whole(local, hardware)
        is_whole = hardware.world_size == 1 or hardware.divides_passes
        everyone = local
        if not is_whole:
            # The penalty may run the network: each rank on its own samples, and before any are
            # dropped, so that all ranks run it equally often.
            local = components.regularizer.shape_reward(components.model, local)
            # advantages compare a sample with others, and statistics are of all samples
            everyone = gather_rollout(local, hardware)
            local = replace(local, all_ranks=GlobalRollout(everyone))
        metrics = image_metrics(self._first_round(local), hardware)
        metrics |= reward_metrics(self._first_round(everyone)) | resampled
        metrics |= components.model.prompt_metrics(everyone.prompts)
        normalised = components.reward.normalise(everyone.rewards, everyone.groups)
        everyone = replace(everyone, rewards=normalised)
        everyone = drop_unscored(everyone, names, self.budget.max_failed)
        metrics |= zero_variance_groups(self._first_round(everyone), names)
        if self.budget.resample:
            everyone = keep_varied(everyone, names, self.budget.prompts_per_iteration)
        if is_whole:
            everyone = components.regularizer.shape_reward(components.model, everyone)
        everyone = components.regularizer.weigh(everyone, components.reward.main)
        everyone = components.algo.compute_advantages(everyone, components.reward.main)
        if len(everyone):
            metrics["advantage/std"] = float(require(everyone.advantage, "advantages").std())
        return attach_global(local, everyone), metrics

    def _resampled(
        self, rollout: Rollout, iteration: int, names: Sequence[str]
    ) -> tuple[Rollout, Metrics]:
        """This rank's samples with those of further rounds, where `resample` asks for them."""
        budget, components = self.budget, self.components
        if not budget.resample:
            return rollout, {}

        def draw(number: int) -> Rollout:
            with components.scorer.begin(self._score_samples, budget.group_size) as pending:
                more = self.sample(iteration, pending.add, number)
                return replace(more, rewards=pending.scores())

        return resample(
            rollout,
            draw,
            names,
            groups=budget.prompts_per_iteration,
            rounds=budget.resample,
            hardware=components.hardware,
        )

    def _first_round(self, everyone: Rollout) -> Rollout:
        """The samples of the first round, which alone are a fair sample of the policy's."""
        if not self.budget.resample:
            return everyone
        count = self.budget.prompts_per_iteration * self.budget.group_size
        return everyone[(everyone.index < count).nonzero().flatten()]

    def _score_samples(self, samples: Samples) -> dict[str, Tensor]:
        fault_point("scoring")
        return score_checked(self.components.reward, samples)

    @property
    def elapsed(self) -> float:
        """Seconds of training, those of earlier processes of this run included."""
        own = 0.0 if self._started is None else perf_counter() - self._started
        return self.seconds + own

    def _take_nfe(self) -> NFECounter:
        """Network evaluations of all ranks since the last call; adds them to the total."""
        own, add = self.components.model.evaluations, self.components.hardware.all_reduce_sum
        counted = own.read_and_reset()
        counted = NFECounter(int(add(counted.forward)), int(add(counted.trained)))
        self.evaluations += counted.forward + counted.trained
        return counted

    def _reason_to_stop(self, metrics: Metrics) -> str | None:
        """Why no iteration follows, if none does."""
        is_late = self.elapsed / 60 > (self.budget.max_minutes or math.inf)
        # the ranks' clocks differ, and all must take the same decision
        if self.components.hardware.any_rank(is_late):
            return f"max_minutes={self.budget.max_minutes} have passed"
        reward = metrics.get(f"reward/{self.components.reward.main}/mean")
        return self.components.stop.update(metrics.get(KL), reward)

    @contextmanager
    def _measured(self, phase: str) -> Iterator[None]:
        """Note the time and the peak memory of a phase of the iteration."""
        begun = perf_counter()
        yield
        self._seconds[phase] = perf_counter() - begun
        self._note_peak(phase)

    def _note_peak(self, phase: str) -> None:
        """The peak of GPU memory since the last phase, as that of `phase`."""
        for kind, gib in self.components.hardware.take_peak_memory().items():
            name = f"memory/{phase}_gb" if kind == "allocated" else f"memory/{kind}_gb"
            self._peaks[name] = max(self._peaks.get(name, 0.0), gib)

    def state_dict(self) -> dict[str, Any]:
        """The non-tensor training state, as plain values.

        The schedules of the averaged weight sets follow these counts, and all that is random is
        keyed by them, so no state of a random generator is needed.
        """
        return {
            "updates": self.learner.updates,
            "skipped": self.guard.consecutive,
            "evaluations": self.evaluations,
            "seconds": self.elapsed,
            "ended": self.ended,
            **self.components.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`."""
        self.learner.updates = state["updates"]
        self.guard.consecutive = state.get("skipped", 0)
        self.evaluations, self.seconds = state["evaluations"], state["seconds"]
        self.ended = state["ended"]
        self.components.load_state_dict(state)
