"""What learning sees: items made of samples, in batches, and what networks say of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from torch import Tensor

from rlfactory.dynamics.base import Step
from rlfactory.nest import chunks, present, take
from rlfactory.rollout import Condition, Tokens


@dataclass(frozen=True)
class Taken:
    """The steps taken, to be replayed: `t_next`, `log_prob` `[N]` and `next` `[N, C, H, W]`.

    `mean` is where the sampling policy's steps were centred, if that was kept.
    """

    t_next: Tensor
    next: Tensor
    log_prob: Tensor
    mean: Tensor | None = None


@dataclass(frozen=True)
class Batch:
    """Training items, one network evaluation each: `x` at `t`, and the sample it came from.

    `sample` is the row in the rollout, `x0` that sample's latents, `advantage` its worth `[N]`.
    A sample's `each` items follow one another. `eps` is the noise in `x`; `old` `[N]` what the
    behaviour policy said of an item, NaN where it is still the policy.
    """

    x: Tensor
    t: Tensor
    x0: Tensor
    sample: Tensor
    condition: Condition
    advantage: Tensor
    taken: Taken | None = None
    eps: Tensor | None = None
    old: Tensor | None = None
    each: int = 1

    def __len__(self) -> int:
        return len(self.t)

    @property
    def weight(self) -> float:
        """How much the mean over this batch counts beside others."""
        return len(self)

    def replay(self) -> Taken:
        """The steps taken; an error where the algorithm keeps none."""
        return present(self.taken, "the steps taken")

    def noise(self) -> Tensor:
        """The noise in `x`; an error where the algorithm adds none."""
        return present(self.eps, "the noise")

    def by_sample(self, values: Tensor) -> Tensor:
        """The mean of `values` `[N]` over each sample's items, `[N / each]`."""
        return values.view(-1, self.each).mean(1)


@dataclass(frozen=True)
class Items:
    """What learning from B samples takes, T network evaluations each: `x` `[B, T, C, H, W]` at `t`.

    What belongs to a sample (`x0`, `condition`, `advantage`) is kept once, and repeated for its
    items in the batches alone. `taken`, `eps` and `old` begin with `[B, T]` too.
    """

    x: Tensor
    t: Tensor
    x0: Tensor
    condition: Condition
    advantage: Tensor
    taken: Taken | None = None
    eps: Tensor | None = None
    old: Tensor | None = None

    def __len__(self) -> int:
        return self.t.numel()

    @property
    def weight(self) -> float:
        """How much the mean over these items counts beside others."""
        return len(self)

    def split(self, size: int) -> Iterator[Batch]:
        """Batches of at most `size` items; of whole samples where a sample's items fit."""
        each = self.t.shape[1]
        flat = _flattened(self)
        for rows in chunks(len(self), size - size % each if size >= each else size):
            sample = rows // each
            yield Batch(
                x=take(flat.x, rows).float(),
                t=take(flat.t, rows),
                x0=take(self.x0, sample),
                sample=sample,
                condition=take(self.condition, sample),
                advantage=take(self.advantage, sample),
                taken=_exact(take(flat.taken, rows)),
                eps=take(flat.eps, rows),
                old=take(flat.old, rows),
                each=each,
            )


def _exact(taken: Taken | None) -> Taken | None:
    """The steps in float32, in which all arithmetic is done, whatever they are stored in."""
    return None if taken is None else replace(taken, next=taken.next.float())


def _flattened(items: Items) -> Items:
    """Samples and their items in one row: `[B, T, ...]` to `[B T, ...]`."""

    def flat(value: Any) -> Any:
        if isinstance(value, Taken):
            return Taken(*(flat(getattr(value, f.name)) for f in fields(value)))
        return None if value is None else value.flatten(0, 1)

    rows = {name: flat(getattr(items, name)) for name in ("x", "t", "taken", "eps", "old")}
    return replace(items, **rows)


@dataclass(frozen=True)
class TokenBatch:
    """Training items, one response each, with its `advantage` and `returns` `[N, G]`.

    No more than `most` of them have room in one pass; None: any number.
    """

    tokens: Tokens
    advantage: Tensor
    returns: Tensor
    most: int | None = None

    def __len__(self) -> int:
        return len(self.advantage)

    @property
    def weight(self) -> float:
        """How much the mean over this batch counts beside others: its number of real tokens."""
        return float(self.tokens.mask.sum())

    def split(self, size: int) -> Iterator["TokenBatch"]:
        """Micro-batches of at most `size` responses, and of no more than have room."""
        for rows in chunks(len(self), size if self.most is None else min(size, self.most)):
            yield take(self, rows)


@dataclass(frozen=True)
class Outputs:
    """What the policy predicts for a batch and, step-wise, the step that this implies.

    `log_ratio` `[n]`, with its gradient: log of the surrogate likelihood's ratio, new over old, an
    item or a sample each. `others`: what other weight sets predict for the same batch, by name,
    filled by whoever asks first, so that no network runs twice.
    """

    prediction: Tensor
    step: Step | None = None
    log_ratio: Tensor | None = None
    others: dict[str, Tensor] = field(default_factory=dict)

    def step_taken(self) -> Step:
        """The step; an error where the algorithm takes none."""
        return present(self.step, "steps")


@dataclass(frozen=True)
class TokenOutputs:
    """What the policy says of a batch's responses: `log_prob`, `entropy` and `value` `[N, G]`.

    `log_probs` `[N, G, V]` is the whole distribution at sampling temperature.
    """

    log_prob: Tensor
    log_probs: Tensor
    value: Tensor
