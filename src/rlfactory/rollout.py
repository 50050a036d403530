"""The data that flows: what was sampled, what it was worth, and the items to learn from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from rlfactory.dynamics.base import Step

T = TypeVar("T")


def take(value: T, index: Tensor) -> T:
    """Rows `index` of every tensor and list inside a nest of dataclasses and mappings."""
    picked: Any = value
    if isinstance(value, Tensor):
        picked = value[index.to(value.device)]
    elif isinstance(value, Mapping):
        picked = {name: take(item, index) for name, item in value.items()}
    elif isinstance(value, list):
        picked = [value[i] for i in index.tolist()]
    elif is_dataclass(value) and not isinstance(value, type):
        rows = {f.name: take(getattr(value, f.name), index) for f in fields(value)}
        picked = replace(value, **rows)
    return picked  # type: ignore[no-any-return]


def chunks(count: int, size: int) -> Iterator[Tensor]:
    """The row numbers 0 to `count - 1`, at most `size` at a time."""
    for start in range(0, count, size):
        yield torch.arange(start, min(start + size, count))


def join(parts: Sequence[T]) -> T:
    """The rows of several nests of the same form, one after another."""
    first: Any = parts[0]
    joined: Any = first
    if isinstance(first, Tensor):
        joined = torch.cat([cast(Tensor, part) for part in parts])
    elif isinstance(first, Mapping):
        joined = {name: join([cast(Any, part)[name] for part in parts]) for name in first}
    elif isinstance(first, list):
        joined = [item for part in parts for item in cast(list[Any], part)]
    elif is_dataclass(first) and not isinstance(first, type):
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(first)}
        joined = replace(first, **{name: join(column) for name, column in columns.items()})
    return joined  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Condition:
    """What a network is told about its prompts: named tensors, one row a sample."""

    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class Transitions:
    """A rollout's stochastic steps: times, log-probability `[B, T]`, states `[B, T, C, H, W]`.

    `mean` is where the sampling policy's step was centred, kept for the algorithms that ask for it.
    """

    t: Tensor
    t_next: Tensor
    x: Tensor
    next: Tensor
    log_prob: Tensor
    mean: Tensor | None = None


@dataclass(frozen=True)
class Tokens:
    """Prompts `[B, P]`, padded on the left, and responses `[B, G]`, padded on the right.

    `mask` is true on the real tokens of a response, an end of text included; `log_prob` and `value`
    `[B, G]` are the behaviour policy's: the value at t is that of the state before token t.
    `reference_log_prob` is that of the policy to stay near, where it is kept.
    """

    prompt: Tensor
    prompt_mask: Tensor
    response: Tensor
    mask: Tensor
    ended: Tensor
    log_prob: Tensor
    value: Tensor
    reference_log_prob: Tensor | None = None


@dataclass(frozen=True)
class Rollout:
    """One iteration's samples. `index` counts them globally and keys their randomness.

    Image models leave `latents` and `images`, and `transitions` where steps are trained; text
    models `tokens` and `texts`. `advantage` is `[B]`, or `[B, G]` as `returns` and `penalty` are.
    `peers` `[B]` numbers those whom an advantage compares, where they are fewer than a group.
    `old` `[B, T]` is the behaviour policy's surrogate likelihood, NaN where learning is on-policy.
    `weight` is the factor on the mean loss over these samples: below 1 where others, whose loss is
    zero, were left out of a mean that is meant to be over all.
    """

    prompts: list[str]
    metadata: list[Mapping[str, Any]]
    groups: Tensor
    index: Tensor
    condition: Condition | None = None
    latents: Tensor | None = None
    images: Tensor | None = None
    transitions: Transitions | None = None
    tokens: Tokens | None = None
    texts: list[str] | None = None
    rewards: Mapping[str, Tensor] = field(default_factory=dict)
    penalty: Tensor | None = None
    advantage: Tensor | None = None
    returns: Tensor | None = None
    peers: Tensor | None = None
    old: Tensor | None = None
    weight: float = 1.0

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: Tensor) -> "Rollout":
        return take(self, index)

    @property
    def mean_length(self) -> float:
        """Tokens of a response, on average; 1 for a picture."""
        return 1.0 if self.tokens is None else float(self.tokens.mask.sum()) / len(self)


def present(value: T | None, what: str) -> T:
    """The value; an error where a rollout or a batch of this kind holds none."""
    if value is None:
        raise ValueError(f"this algorithm needs {what}, and there is none here")
    return value


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
        return values.unflatten(0, (-1, self.each)).mean(1)


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
    """Training items, one response each, with its `advantage` and `returns` `[N, G]`."""

    tokens: Tokens
    advantage: Tensor
    returns: Tensor

    def __len__(self) -> int:
        return len(self.advantage)

    @property
    def weight(self) -> float:
        """How much the mean over this batch counts beside others: its number of real tokens."""
        return float(self.tokens.mask.sum())

    def split(self, size: int) -> Iterator["TokenBatch"]:
        """Micro-batches of at most `size` responses."""
        for rows in chunks(len(self), size):
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
