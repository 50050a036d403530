"""Training items and the micro-batches they are split into; the networks' outputs for them.

A training item is one forward and backward pass: a sample at one time (images) or a response
(texts). Dimensions: B samples of T items each, N items in a micro-batch, G response tokens, M real
tokens of a micro-batch, V words of the vocabulary.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from rlfactory.dynamics.base import Step
from rlfactory.rollout import Condition, Tokens, Transitions
from rlfactory.utils.pytree import require, to_device


@dataclass(frozen=True)
class Items:
    """The fields of training items for an image model, of an update or of a micro-batch.

    They begin with `[B, T]` in `TrainingItems`, but for those of a sample (`x0`, `condition`,
    `sample_log_ratio`, `penalty_weight` and, if it is not one of each item, `advantage`), which
    begin with `[B]`; in `Batch` all of them begin with `[N]`.

    Attributes:
        x: Noisy latents, with `[C, H, W]`; None where `TrainingItems.noise` makes them.
        t: Their times.
        x0: Final latents of the item's sample, with `[C, H, W]`.
        condition: Encoded prompts.
        advantage: Advantage of the item's sample.
        replayed: The steps that the rollout took from `x` at `t`, to be evaluated again, where
            steps are trained.
        eps: The noise in `x`, with `[C, H, W]`, where final samples are trained.
        old_log_prob: Log-likelihood under the behaviour policy, computed before the first update;
            NaN where that is still the policy. None: all items are on-policy or, where steps are
            replayed, the log-probability as sampled is meant.
        sample_log_ratio: Where samples are divided among micro-batches, the log-ratio of the item's
            whole sample, without gradient; None: 0, since all samples are on-policy.
        penalty_weight: Weight of the item's sample in the regularizer's penalty; None: 1.
    """

    x: Tensor | None
    t: Tensor
    x0: Tensor
    condition: Condition
    advantage: Tensor
    replayed: Transitions | None = None
    eps: Tensor | None = None
    old_log_prob: Tensor | None = None
    sample_log_ratio: Tensor | None = None
    penalty_weight: Tensor | None = None

    @property
    def weight(self) -> float:
        """Weight of the mean loss over these items in an update: their number."""
        return len(self)

    def __len__(self) -> int:
        return self.t.numel()


@dataclass(frozen=True)
class Batch(Items):
    """A micro-batch of N training items for an image model.

    Attributes:
        sample: Row of the item's sample among the B samples, `[N]`.
        items_per_sample: T; the items of a sample follow one another.
        is_divided: Whether a sample's items may be in several micro-batches though they have one
            ratio.
    """

    x: Tensor
    sample: Tensor = field(kw_only=True)
    items_per_sample: int = 1
    is_divided: bool = False

    def require_replayed(self) -> Transitions:
        """The steps to replay; ValueError if there are none."""
        return require(self.replayed, "the steps taken")

    def require_eps(self) -> Tensor:
        """The noise in `x`; ValueError if there is none."""
        return require(self.eps, "the noise")

    def per_sample(self, log_ratios: Tensor) -> tuple[Tensor, Tensor]:
        """One log-ratio for each sample, the mean over its items, and its advantage.

        Args:
            log_ratios: Those of the items, `[N]` with gradient.

        Returns:
            Two tensors `[N / T]`. Where samples are divided, `[N]`: each item has the value of its
            whole sample and the gradient of its own log-ratio, so that the mean over all items of
            a function of it has the value and the gradient of the mean over samples.
        """
        if self.is_divided:
            own = log_ratios - log_ratios.detach()
            whole = self.sample_log_ratio
            return (own if whole is None else whole + own), self.advantage
        count = self.items_per_sample
        return log_ratios.view(-1, count).mean(1), self.advantage.view(-1, count).mean(1)


@dataclass(frozen=True)
class TrainingItems(Items):
    """All training items of B samples for an image model, T items each, or some of them.

    What belongs to a sample is stored once for each sample and repeated in micro-batches only.

    Attributes:
        noise: `noise(x0, eps, t)`, the noisy latents `[N, C, H, W]`, where `x` is None; they are
            made a micro-batch at a time.
        selected: Numbers of the items that are trained, out of B T, in the order of micro-batches;
            None: all are, in ascending order.
        whole_samples: Whether micro-batches hold complete samples wherever one fits, since there is
            one ratio for each sample.
    """

    whole_samples: bool = False
    noise: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
    selected: Tensor | None = None

    def __len__(self) -> int:
        return self.t.numel() if self.selected is None else len(self.selected)

    def select(self, mask: Tensor) -> "TrainingItems":
        """Only the items where `mask` `[B, T]`, on the CPU, is true."""
        numbers = mask.flatten().nonzero().flatten()
        return replace(self, selected=to_device(numbers, self.t.device))

    def as_rows(self, values: Tensor) -> Tensor:
        """Values of the trained items, `[len(self), ...]`, as `[B, T, ...]`, NaN for the others."""
        rows = values
        if self.selected is not None:
            rows = values.new_full((self.t.numel(), *values.shape[1:]), torch.nan)
            rows[self.selected] = values
        return rows.view(*self.t.shape, *values.shape[1:])

    def is_divided_by(self, size: int) -> bool:
        """Whether micro-batches of `size` items divide samples that have one ratio each."""
        return self.whole_samples and size < self.t.shape[1]

    def starts(self, size: int) -> range:
        """Where micro-batches of `size` items begin, and, as its step, how many items they have.

        With `whole_samples` they have as many complete samples as fit, if one does.
        """
        if self.whole_samples and not self.is_divided_by(size):
            size -= size % self.t.shape[1]
        return range(0, len(self), size)

    def split(self, size: int, starts: range | None = None) -> Iterator[Batch]:
        """Yield micro-batches of `size` items; the last one may have fewer.

        `starts` are some of those that `starts(size)` gives; None: all.
        """
        count, device = self.t.shape[1], self.t.device
        divided = self.is_divided_by(size)
        starts = self.starts(size) if starts is None else starts
        flat, condition = self._flattened(), self.condition.with_prompts_on(device)
        for start in starts:
            # Slices, and an index that is made on the device: no micro-batch waits for a copy.
            end = min(start + starts.step, len(self))
            rows: slice | Tensor = slice(start, end)
            if self.selected is not None:
                rows = numbers = self.selected[rows]
            else:
                numbers = torch.arange(start, end, device=device)
            sample = numbers // count
            x0, t = self.x0[sample], flat.t[rows]
            eps, ratio = _rows(flat.eps, rows), _rows(self.sample_log_ratio, sample)
            if flat.x is not None:
                x = flat.x[rows].float()
            else:
                noise = require(flat.noise, "a forward process")
                x = noise(x0, require(eps, "the noise"), t).float()
            is_per_item = self.advantage.ndim > 1
            yield Batch(
                x=x,
                t=t,
                x0=x0,
                sample=sample,
                condition=condition.rows(sample),
                advantage=flat.advantage[rows] if is_per_item else self.advantage[sample],
                replayed=flat.replayed and _replayed(flat.replayed, rows, x, t),
                eps=eps,
                old_log_prob=_rows(flat.old_log_prob, rows),
                items_per_sample=count,
                is_divided=divided,
                sample_log_ratio=ratio,
                penalty_weight=_rows(self.penalty_weight, sample),
            )

    def _flattened(self) -> "TrainingItems":
        """The items with `[B, T, ...]` flattened to `[B T, ...]`."""

        def flat(value: Tensor | None) -> Any:
            return None if value is None else value.flatten(0, 1)

        steps = self.replayed
        if steps is not None:
            columns = {f.name: flat(getattr(steps, f.name)) for f in fields(steps)}
            steps = Transitions(**columns)
        names = ["x", "t", "eps", "old_log_prob"]
        if self.advantage.ndim > 1:
            names.append("advantage")
        return replace(self, replayed=steps, **{name: flat(getattr(self, name)) for name in names})


def _rows(values: Tensor | None, rows: slice | Tensor) -> Tensor | None:
    return None if values is None else values[rows]


def _replayed(steps: Transitions, rows: slice | Tensor, x: Tensor, t: Tensor) -> Transitions:
    """Some steps, in float32 as step arithmetic is, even if states are stored in float16."""
    after, log_prob = steps.next[rows].float(), steps.log_prob[rows]
    return Transitions(t, steps.t_next[rows], x, after, log_prob, _rows(steps.mean, rows))


@dataclass(frozen=True)
class TokenBatch:
    """Training items of a language model, N responses; both an update's and a micro-batch's.

    Attributes:
        tokens: Prompts and responses.
        advantage: `[N, G]`.
        returns: Targets of the value head, `[N, G]`.
        old_log_prob: Log-probability under the behaviour policy, `[N, G]`, computed before the
            first update; NaN where that is still the policy. None: the one as sampled is meant.
        max_rows: The most responses whose logits fit in memory; None: no limit.
        states: The `with_end_state` of the tokens, where states after the end have values too.
        token_weight: Weight of each response's tokens in the mean loss, `[N]`; None: 1.
    """

    tokens: Tokens
    advantage: Tensor
    returns: Tensor
    old_log_prob: Tensor | None = None
    max_rows: int | None = None
    states: Tokens | None = None
    token_weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.advantage)

    def weight_of_tokens(self) -> Tensor | None:
        """Weight of each real token in the mean loss, `[M]`; None: 1."""
        if self.token_weight is None:
            return None
        return self.tokens.real(self.token_weight[:, None].expand(self.tokens.mask.shape))

    @property
    def weight(self) -> float:
        """Weight of this batch's mean loss among the batches of an update: its real tokens."""
        return float(self.tokens.count)

    def starts(self, size: int) -> range:
        """Where micro-batches of at most `size` responses begin; its step is how many they have.

        They have `max_rows` responses at most: smaller passes cost less than to compute logits
        again in the backward pass.
        """
        return range(0, len(self), size if self.max_rows is None else min(size, self.max_rows))

    def split(self, size: int, starts: range | None = None) -> Iterator["TokenBatch"]:
        """Yield micro-batches of at most `size` responses, each as wide as its longest ones.

        `starts` are some of those that `starts(size)` gives; None: all.
        """
        tokens = self.tokens.measured()
        reaching = None if self.states is None else self.states.measured()
        starts = self.starts(size) if starts is None else starts
        for start in starts:
            rows = slice(start, start + starts.step)
            part = tokens.part(rows)
            width = part.mask.shape[1]
            old = None if self.old_log_prob is None else self.old_log_prob[rows, :width]
            states = None if reaching is None else reaching.part(rows)
            reached = width if states is None else states.mask.shape[1]
            yield replace(
                self,
                tokens=part,
                advantage=self.advantage[rows, :width],
                returns=self.returns[rows, :reached],
                old_log_prob=old,
                max_rows=None,
                states=states,
                token_weight=None if self.token_weight is None else self.token_weight[rows],
            )


@dataclass(frozen=True)
class Outputs:
    """An image policy's outputs for a micro-batch of N items.

    Attributes:
        prediction: The network's prediction, `[N, C, H, W]`.
        step: The sampling step that it implies, where steps are trained.
        log_ratio: Log of the surrogate likelihood ratio, new over old, with its gradient: `[N]`,
            or `[N / T]` with one ratio for each sample.
        by_weight_set: Predictions of other weight sets for the same batch, by name. A cache: the
            first user fills it, so that no network runs twice.
    """

    prediction: Tensor
    step: Step | None = None
    log_ratio: Tensor | None = None
    by_weight_set: dict[str, Tensor] = field(default_factory=dict)

    def require_step(self) -> Step:
        """The sampling step; ValueError if the algorithm has none."""
        return require(self.step, "steps")


@dataclass(frozen=True)
class TokenOutputs:
    """A language model's outputs for the M real tokens of a micro-batch.

    Attributes:
        log_prob: Log-probability of the tokens as sampled, `[M]`.
        log_probs: Log-probabilities of the whole vocabulary at the sampling temperature, `[M, V]`;
            None where they are too many to be held at once.
        value: Value of the state before each token, `[M]`.
        states: The hidden states that logits are projected from, `[M, d]`, where `log_probs` is
            None.
        log_ratio: Log of the surrogate's ratio, new over old, `[M]` with its gradient.
        weight: Weight of each token in the mean loss, `[M]`; None: 1.
    """

    log_prob: Tensor
    log_probs: Tensor | None
    value: Tensor
    states: Tensor | None = None
    log_ratio: Tensor | None = None
    weight: Tensor | None = None
