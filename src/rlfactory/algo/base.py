"""The contract of an algorithm: how rewards become a loss, and what the rollout must hold for it.

To add an algorithm, subclass `Algorithm` in a file of this folder (`grpo.py` is a short example on
sampling steps, `awm.py` one on final samples) and name the class in `conf/algo/<name>.yaml`.
The training loop, the sampler and the optimizer live elsewhere (`train/`).

Constructor. Keyword-only parameters are the algorithm's configuration. Positional parameters are
run-time objects; `train/build.py` passes those that the constructor names, out of

    dynamics   the `Dynamics` (images) or `Token` (texts) that samples are drawn with
    advantage  the configured `Advantage`
    times      the configured `Times`, the noise levels to train at (forward-process algorithms)
    sigmas     the rollout's times `[n + 1]`, from 1 down to 0
    reward     the configured `Reward`, for algorithms that follow its gradient (`score_pixels`)

Order of calls in each iteration:

    0. `prepare`              once, before the first iteration
    1. samples are drawn with the weight set `behaviour`, and scored; of each the state before
       the step `kept_step` is kept, if there is one
       (with `samples_from = "data"`, `completion` gives the sample of each row of the data)
    2. `reward_names`         samples that lack one of these scores are dropped
    3. `compute_advantages`   on the samples of all ranks
    4. `training_items` and `log_likelihoods`, without gradient, for the log-likelihoods before the
       first update; only if `has_surrogate_likelihood`, or if replayed steps are recomputed
    5. for each update (optimizer step) of each epoch:
       `normalise_update`     on the update's samples, of all ranks
       `training_items`       on this rank's samples of the update
       `loss`                 on each micro-batch of those items; then the regularizer's `penalty`

A static method `validate(options, run)` may check options of its own, and with them those of the
run (`utils.types.Faults`). It is compiled from its source while planning, so it uses builtins and
what it imports itself, without torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from torch import Tensor

from rlfactory.algo.advantage.base import Advantage
from rlfactory.model.weight_sets import POLICY
from rlfactory.prompts.base import Prompt
from rlfactory.rollout import Rollout
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.pytree import require

OldLogProbs = Literal["auto", "sampled", "recomputed"]
"""Where a replayed step's old log-probability comes from: as it was recorded while sampling, or
recomputed before the first update in the micro-batches of learning. `auto` recomputes them where
both could differ by rounding: learning computes in another precision than sampling, or in half
precision and in batches of another size, whose sums a GPU may add in another order."""

PAIR = 2
"""Samples of a pair."""

ModelT = TypeVar("ModelT")
ItemsT = TypeVar("ItemsT")
BatchT = TypeVar("BatchT")


@dataclass(frozen=True)
class Loss:
    """The loss of a micro-batch.

    Attributes:
        value: Scalar to minimise, with its gradient.
        outputs: `Outputs` or `TokenOutputs` of the same forward pass, for the regularizer.
        metrics: Values to log by metric name, detached, one a training item (tokens: one a token).
    """

    value: Tensor
    outputs: Any
    metrics: dict[str, Tensor]

    def __post_init__(self) -> None:
        if not isinstance(self.value, Tensor) or self.value.ndim:
            shape = list(self.value.shape) if isinstance(self.value, Tensor) else ""
            raise TypeError(f"value must be a scalar tensor, not a {_kind(self.value)} {shape}")
        wrong = {n: _kind(v) for n, v in self.metrics.items() if not isinstance(v, Tensor)}
        if wrong:
            raise TypeError(f"metrics must be tensors, one number an item; there are {wrong}")


def checked_loss(algo: Any, model: Any, batch: Any) -> Loss:
    """An algorithm's loss of a micro-batch; TrainingError where it returns something else."""
    loss = algo.loss(model, batch)
    if not isinstance(loss, Loss):
        raise TrainingError(
            f"{type(algo).__name__}.loss returned a {type(loss).__name__}; it returns a Loss of"
            " rlfactory.algo.base, Loss(value, outputs, metrics)"
        )
    return loss


def _kind(value: object) -> str:
    return type(value).__name__


class Algorithm(ABC, Generic[ModelT, ItemsT, BatchT]):
    """Base class of all algorithms.

    `ModelT` is `ImageModel` or `TextModel`; `ItemsT` is `TrainingItems` or `TokenBatch`, whose
    `split` yields `BatchT`, that is `Batch` or `TokenBatch`. The class attributes are read from the
    source to check a configuration, so they must be literals. A static method `items(options, run,
    steps)` may say how many training items a sample has, by the algorithm's options, the root of
    the configuration and the sampling steps that have a likelihood; without it there is one for
    each of `step_fraction` of those steps, of `times.count`, or one text. Another, `passes(options,
    run)`, may say how many passes of the network an item takes, on average, and of how many the
    activations are held at once; without it both are 1. `networks(options)` may say how many frozen
    networks of the model's size are in memory beside it, by one of which each item is evaluated
    too. They are compiled from the source too, so they use builtins, and import what else they
    need, without torch.

    Attributes:
        requires: What the rollout must hold: `transitions` (the stochastic steps), `tokens`,
            `forward_process` (final samples alone, to be noised again), or `states` (before
            `kept_step`, from where the reward's gradient is followed through the steps of an ODE).
        compared_weight_sets: Weight sets other than the policy that `loss` evaluates.
        stores_step_mean: Whether each transition also keeps the mean of its step's distribution.
        samples_from: Where the samples of an iteration come from: the `policy`, or the `data`, of
            which `completion` says what a sample is. Such samples have no likelihood as sampled.
        data_scores: With `samples_from = "data"`, what evaluations show of held-out rows by name:
            the metric of `Loss.metrics`, and whether `higher` or `lower` is better of it. The first
            one decides which checkpoint is best where no reward is chosen.
        length: The most tokens of a completion of the data; None: as many as fit into the context.
        learns_whole_texts: Whether samples of the data have no prompt before what is learned.
        learns_answers_alone: Whether thoughts of a completion, up to the token that completes
            `</think>`, are given and not learned.
        learns_from_pairs: Whether the loss compares two samples of a group, which are then in the
            same update, as `shares` is `groups`, and in the same micro-batch. Each row of the data
            gives two samples.
        learns_from_groups: Whether the loss compares all samples of a group, which are then in the
            same update, as `shares` is `groups`, and in the same micro-batch.
        uses_critic: Whether values of a language model's critic are read; without it there is none.
            `needs_critic` may decide by the options.
        on_policy: Whether an iteration allows a single update only.
        has_surrogate_likelihood: Whether `log_likelihoods` is defined, and the loss returns
            `Outputs.log_ratio`.
        one_ratio_per_sample: Whether a sample's items have one ratio: micro-batches hold complete
            samples where one fits, and `Batch.per_sample` gives the ratio in any case.
        trains_tree: Whether trajectories are trees, each edge of which is trained once.
        columns: The options that name the columns of the data that are learned from.
        decided_by: Attributes that an option of another name decides: by attribute the option, and
            the attribute's value for values of it (None for others).
        divides_by_step_std: Whether the loss is undefined for a step without noise.
        required_dynamics: The only `step_form` of dynamics that the loss is valid for; None: any.
        behaviour: The weight set that samples; an instance may set it.
        skip_old_log_probs: Whether samples of an on-policy first update go without old
            log-likelihoods, since their ratio is 1 by construction; saves forward passes.
        old_log_probs: Where the old log-probabilities of replayed steps come from; an instance
            whose `requires` is `transitions` may set it.
        dynamics, times, sigmas: What the constructor may name, see above; an instance that a Python
            caller made without them gets them from the run.
        step_fraction: Share of a sample's transitions that are training items.
        ratio_tolerance: The largest `|ratio - 1|` allowed before the first update of a run;
            training stops beyond it. None: not checked.
        advantage: The estimator that `compute_advantages` calls by default.
    """

    requires: ClassVar[Literal["transitions", "forward_process", "tokens", "states"]]
    compared_weight_sets: tuple[str, ...] = ()
    stores_step_mean: ClassVar[bool] = False
    samples_from: ClassVar[Literal["policy", "data"]] = "policy"
    data_scores: ClassVar[Mapping[str, tuple[str, str]]] = {}
    learns_from_pairs: ClassVar[bool] = False
    learns_from_groups: ClassVar[bool] = False
    uses_critic: ClassVar[bool] = True
    on_policy: ClassVar[bool] = False
    has_surrogate_likelihood: ClassVar[bool] = False
    one_ratio_per_sample: bool = False
    trains_tree: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]] = ()
    decided_by: ClassVar[Mapping[str, tuple[str, Mapping[Any, Any]]]] = {}
    divides_by_step_std: ClassVar[bool] = False
    required_dynamics: ClassVar[str | None] = None
    behaviour: str = POLICY
    skip_old_log_probs: bool = True
    old_log_probs: OldLogProbs = "sampled"
    dynamics: Any = None
    times: Any = None
    sigmas: Any = None
    step_fraction: float = 1.0
    ratio_tolerance: float | None = None
    length: int | None = None
    learns_whole_texts: bool = False
    learns_answers_alone: bool = False
    advantage: Advantage | None = None

    @classmethod
    def needs_critic(cls, options: Mapping[str, Any]) -> bool:
        """Whether a language model gets a critic.

        Args:
            options: The configuration of the algorithm.
        """
        return cls.uses_critic

    @property
    def replays_rollout(self) -> bool:
        """Whether the steps or tokens that were drawn are evaluated again."""
        return self.requires in ("transitions", "tokens")

    @property
    def members(self) -> int:
        """The completions of a row of the data: both of a pair."""
        return PAIR if self.learns_from_pairs else 1

    def prepare(self, model: ModelT) -> None:
        """Load what the loss evaluates beside the model; by default nothing.

        Called once, before the first iteration of a process.

        Args:
            model: The model being trained.

        Raises:
            ModelError: It can't be loaded, or does not fit the model.
        """
        del model

    def kept_step(self, total: int, *, seed: int, iteration: int) -> int:
        """The step before which `Rollout.state` is kept, where the algorithm `requires` states.

        Args:
            total: The number of sampling steps.
            seed: The run's seed.
            iteration: Number of the iteration, from 0.

        Returns:
            From 0 to `total - 1`, the same for all samples.

        Raises:
            NotImplementedError: The algorithm requires no states.
        """
        raise NotImplementedError

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """Add `advantage` to a rollout.

        Args:
            rollout: The scored samples of all ranks, without latents, images and transitions;
                `rewards` holds `[B]` for each score, none of them NaN.
            main: Name of the reward's main score.

        Returns:
            The rollout with `advantage` `[B]`, or `[B, G]` for tokens. Samples without a learning
            signal may be left out.

        Raises:
            ValueError: The algorithm has no advantage estimator.
        """
        return require(self.advantage, "an advantage")(rollout, main)

    def reward_names(self, main: str) -> list[str]:
        """Names of the scores that train.

        Args:
            main: Name of the reward's main score.

        Returns:
            The scores that a sample must have to be trained on.
        """
        if self.samples_from == "data":  # whose scores are reported only
            return []
        return [main] if self.advantage is None else self.advantage.names(main)

    def completion(self, prompt: Prompt, member: int) -> tuple[str, Any]:
        """A sample of the data, for algorithms with `samples_from = "data"`.

        Args:
            prompt: A row of the data.
            member: The number of the sample within the prompt's group.

        Returns:
            The text that is given, and what is learned: a text, or an image in any form that
            `prompts.ops.pictured.pictured` takes.

        Raises:
            PromptError: The row lacks what the algorithm learns from.
            NotImplementedError: The algorithm learns from what the policy draws.
        """
        raise NotImplementedError

    def normalise_update(self, samples: Rollout) -> Rollout:
        """Normalise the advantages within one update, or order it; by default nothing changes.

        Args:
            samples: The update's samples of all ranks, without latents, images and transitions.

        Returns:
            The same samples, in the order in which they are divided into micro-batches.
        """
        return samples

    @abstractmethod
    def training_items(
        self, rollout: Rollout, model: ModelT, *, seed: int, iteration: int
    ) -> ItemsT:
        """Turn samples into training items, one forward and backward pass each.

        Randomness must depend on `seed`, `iteration` and `rollout.index` alone (`utils/rng.py`), so
        that a second call, another rank or a resumed run makes the same items.

        Args:
            rollout: B of this rank's samples, complete, with advantages.
            model: The model being trained.
            seed: The run's seed.
            iteration: Number of the iteration, from 0.

        Returns:
            `TrainingItems` with T items for each sample, or a `TokenBatch` with one.

        Raises:
            ValueError: The rollout lacks what the algorithm `requires`.
        """

    def log_likelihoods(self, model: ModelT, batch: BatchT) -> Tensor:
        """Surrogate log-likelihood of each item, for algorithms with `has_surrogate_likelihood`.

        Args:
            model: The model, with the behaviour policy's weights in use.
            batch: A micro-batch of N items.

        Returns:
            `[N]`.

        Raises:
            NotImplementedError: The algorithm has no surrogate likelihood.
        """
        raise NotImplementedError

    @abstractmethod
    def loss(self, model: ModelT, batch: BatchT) -> Loss:
        """Mean loss over the items of a micro-batch; the loop calls backward.

        Args:
            model: The model, with the policy's weights in use.
            batch: A micro-batch of N items.

        Returns:
            The scalar loss, the model's outputs and the metrics.

        Raises:
            ValueError: The batch lacks what the algorithm `requires`.
        """
