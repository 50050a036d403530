"""The data that flows: what was sampled, what it was worth, and the items that learning runs
through the network.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
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
    """The stochastic steps of a rollout: times and log-probability `[B, T]`, states `[B, T, C, H,
    W]`.
    """

    t: Tensor
    t_next: Tensor
    x: Tensor
    next: Tensor
    log_prob: Tensor


@dataclass(frozen=True)
class Rollout:
    """One iteration's samples. `index` counts them globally and keys their randomness."""

    prompts: list[str]
    metadata: list[Mapping[str, Any]]
    groups: Tensor
    index: Tensor
    condition: Condition
    latents: Tensor
    images: Tensor
    transitions: Transitions | None
    rewards: Mapping[str, Tensor]
    advantage: Tensor | None = None

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: Tensor) -> "Rollout":
        return take(self, index)


@dataclass(frozen=True)
class Taken:
    """The steps that a rollout took, to be replayed: `t_next`, `log_prob` `[N]` and `next` `[N, C,
    H, W]`.
    """

    t_next: Tensor
    next: Tensor
    log_prob: Tensor


@dataclass(frozen=True)
class Batch:
    """Training items, one network evaluation each: the input `x` at `t`, and the sample it came
    from.

    `sample` is the row in the rollout, `x0` that sample's latents, `advantage` its worth `[N]`.
    """

    x: Tensor
    t: Tensor
    x0: Tensor
    sample: Tensor
    condition: Condition
    advantage: Tensor
    taken: Taken | None = None

    def __len__(self) -> int:
        return len(self.t)

    def split(self, size: int) -> Iterator["Batch"]:
        """Micro-batches of at most `size` items."""
        for rows in chunks(len(self), size):
            yield take(self, rows)

    def replay(self) -> Taken:
        """The steps taken; an error where the algorithm keeps none."""
        if self.taken is None:
            raise ValueError(
                "this batch holds no transitions: its algorithm works on final samples"
            )
        return self.taken


@dataclass(frozen=True)
class Outputs:
    """What the policy made of a batch: its prediction and, for step-wise algorithms, the step that
    it implies.
    """

    prediction: Tensor
    step: Step | None = None

    def step_taken(self) -> Step:
        """The step; an error where the algorithm takes none."""
        if self.step is None:
            raise ValueError("this algorithm replays no steps, so their means are not known")
        return self.step
