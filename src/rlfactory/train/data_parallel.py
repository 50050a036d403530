"""Data parallelism: which samples this rank owns, and all-gathering the light fields of the others.

Each rank draws, scores and differentiates its own samples. Advantages and minibatches are computed
from the samples of all ranks, on every rank alike, so that the number of ranks changes nothing. For
that their light fields are gathered; images, latents, transitions and conditions stay where they
were drawn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from rlfactory.hardware.base import Hardware
from rlfactory.prompts.ops.pictured import identity
from rlfactory.rollout import GlobalRollout, Rollout
from rlfactory.train.iteration_metrics import pairwise_distance
from rlfactory.utils.pytree import index_rows, require

LIGHT = (
    *("prompts", "groups", "index", "texts", "rewards", "penalty", "comparison_group", "tree"),
    "tokens",  # padded to one width on all ranks: a sampler encodes all prompts at once
)
HEAVY = ("metadata", "state", "images", "latents", "transitions")
"""Fields of a rollout that are gathered, always or where each rank has all samples."""
LEARNED = ("rewards", "penalty_weight", "advantage", "returns", "tree", "token_weight")
"""Fields that are computed of the samples of all ranks."""
Measured = Mapping[str, Tensor]
T = TypeVar("T")


def local_rows(groups: Tensor, hardware: Hardware) -> Tensor | None:
    """The rows of the samples that this rank owns; None in a single process: all of them.

    Groups are never cut, and are sharded as evenly as possible. Where there are fewer groups than
    ranks, the last ranks own the first group as well, since a rank without samples could not take
    part in the collectives.
    """
    if hardware.world_size == 1:
        return None
    numbers = torch.unique(groups)
    own = numbers.tensor_split(hardware.world_size)[hardware.rank]
    return torch.isin(groups, own if len(own) else numbers[:1]).nonzero().flatten()


class Shard:
    """The samples that this rank owns, by their row numbers in the global order; None: all.

    Gathered values come in the global order, each row once, though ranks may own the same ones.
    """

    def __init__(self, rows: Tensor | None, hardware: Hardware) -> None:
        self.rows, self.hardware = rows, hardware
        # gathered once: the row numbers of all ranks give the position of each row in later gathers
        self._order: Tensor | None = None
        if rows is not None:  # where each number stands first, in the order of the numbers
            numbers = hardware.all_gather(rows).numpy()
            self._order = torch.from_numpy(np.unique(numbers, return_index=True)[1])

    def all_gather(self, values: T) -> T:
        """The values of all ranks' rows, from those of this rank's: a tensor, a list, scores, or a
        dataclass of them; a field that is None, or one value for all, on all ranks stays.
        """
        column: Any = values
        if self._order is None:
            return values
        if isinstance(column, Tensor):
            column = self.hardware.all_gather(column)[self._order.to(column.device)]
        elif isinstance(column, list):
            column = index_rows(self.hardware.all_gather_list(column), self._order)
        elif isinstance(column, Mapping):
            column = self.all_gather_scores(column)
        elif is_dataclass(column) and not isinstance(column, type):
            gathered: dict[str, Any] = {
                f.name: self.all_gather(getattr(column, f.name)) for f in fields(column)
            }
            column = replace(column, **gathered)
        return cast("T", column)

    def all_gather_scores(self, scores: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The scores of all ranks' rows by name, NaN where a rank has no score of a name."""
        if self.rows is None:
            return dict(scores)
        # ranks may know different scores, as a reward that failed on one of them gives fewer; one
        # table with the same columns on every rank makes it one collective
        names = _all_names([*scores], self.hardware)
        if not names:
            return {}
        unknown = torch.full((len(self.rows),), torch.nan)
        table = self.all_gather(torch.stack([scores.get(name, unknown) for name in names], 1))
        return dict(zip(names, table.unbind(1), strict=True))


def gather_rollout(rollout: Rollout, hardware: Hardware) -> Rollout:
    """The samples of all ranks in the global order, without their heavy fields.

    Images, latents, transitions, conditions and metadata are left out. In a single process this is
    the rollout itself.
    """
    if hardware.world_size == 1:
        return rollout
    own = replace(rollout, prompts=[identity(prompt) for prompt in rollout.prompts])
    gathered = _gathered(Shard(rollout.index, hardware), own, LIGHT)
    return Rollout(metadata=[{}] * len(gathered["index"]), **gathered)


def _gathered(shard: Shard, rollout: Rollout, names: Sequence[str]) -> dict[str, Any]:
    return {name: shard.all_gather(getattr(rollout, name)) for name in names}


def gather_whole(rollout: Rollout, hardware: Hardware) -> Rollout:
    """The samples of all ranks in the global order, with all fields that are drawn."""
    shard = Shard(rollout.index, hardware)
    condition = rollout.condition
    if condition is not None:
        rows = condition.rows(torch.arange(len(rollout)))
        tensors = {name: shard.all_gather(values) for name, values in rows.tensors.items()}
        condition = replace(condition, tensors=tensors, prompt=None)
    heavy = _gathered(shard, rollout, HEAVY)
    return replace(gather_rollout(rollout, hardware), condition=condition, **heavy)


def attach_global(rollout: Rollout, everyone: Rollout) -> Rollout:
    """This rank's part of the samples of all ranks, with these attached as `all_ranks`; in a
    single process `everyone` itself.

    Args:
        rollout: this rank's samples with all fields, before any were dropped.
        everyone: the samples of all ranks that are learned from, with advantages.
    """
    if rollout is everyone or rollout.all_ranks is None:
        return everyone
    # any sample of this rank with an advantage of 0 can pad its micro-batches
    padding = index_rows(rollout, torch.zeros(1, dtype=torch.int64))
    advantage = require(everyone.advantage, "advantages")
    zero = advantage.new_zeros(1, *advantage.shape[1:])
    padding = replace(padding, advantage=zero, returns=None if everyone.returns is None else zero)
    local = local_part(rollout, everyone)
    return replace(local, all_ranks=GlobalRollout(everyone, padding))


def global_rollout(rollout: Rollout) -> Rollout:
    """The samples of all ranks; in a single process the rollout itself."""
    return rollout if rollout.all_ranks is None else rollout.all_ranks.samples


def local_part(rollout: Rollout, samples: Rollout) -> Rollout:
    """This rank's part of some of the samples of all ranks, with all fields; in a single process
    `samples` themselves.

    Rewards, advantages, returns, trees and weights are those of `samples`.
    """
    if rollout.all_ranks is None:
        return samples
    own, rows = _shared(rollout, samples.index)
    learned: dict[str, Any] = {name: index_rows(getattr(samples, name), rows) for name in LEARNED}
    return replace(index_rows(rollout, own), loss_weight=samples.loss_weight, **learned)


def local_row_numbers(rollout: Rollout, rows: Tensor) -> Tensor:
    """The rows of this rank's rollout that are among `rows` of the samples of all ranks."""
    if rollout.all_ranks is None:
        return rows
    return _shared(rollout, rollout.all_ranks.samples.index[rows])[0]


def gather_metrics(measured: Sequence[Measured], hardware: Hardware) -> Measured:
    """Metrics of all micro-batches of all ranks in an update, those of rank 0 first; those of
    this rank all have the same names.
    """
    lists = {name: [part[name] for part in measured] for name in (measured or [{}])[0]}
    values = {k: torch.cat([v.reshape(-1).float() for v in vs]) for k, vs in lists.items()}
    if hardware.world_size == 1:
        return values
    # Ranks have different numbers of micro-batches, perhaps none, whose metrics have different
    # names then. Sizes first, then all values as one row: two collectives whatever there is.
    names = _all_names([*values], hardware)
    columns = [values[name] for name in names if name in values]
    counts = [len(values[name]) if name in values else 0 for name in names]
    sizes = hardware.all_gather(torch.tensor([counts]))
    # float32 on the CPU, which every backend can concatenate; copied once, since a copy waits
    flat = hardware.all_gather((torch.cat(columns) if columns else torch.empty(0)).cpu())
    pieces = torch.split(flat, sizes.flatten().tolist())
    return {name: torch.cat(pieces[i :: len(names)]) for i, name in enumerate(names)}


def image_metrics(rollout: Rollout, hardware: Hardware) -> dict[str, float]:
    """The diversity of images: the mean over ranks, since images are not gathered.

    It is the mean over all groups, as ranks have equally many.
    """
    if rollout.images is None:
        return {}
    local = pairwise_distance(rollout.images, rollout.groups, hardware.device)
    if hardware.divides_passes:  # each rank has all of them
        return {"diversity/pairwise": local}
    return {"diversity/pairwise": hardware.all_reduce_sum(local) / hardware.world_size}


def _shared(rollout: Rollout, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Where the samples stand that are a rollout's and among these numbers: in it, and in them."""
    position = {number: row for row, number in enumerate(rollout.index.tolist())}
    found = [(position[n], row) for row, n in enumerate(numbers.tolist()) if n in position]
    own, rows = torch.tensor(found, dtype=torch.int64).view(-1, 2).unbind(1)
    return own, rows


def _all_names(names: Sequence[str], hardware: Hardware) -> list[str]:
    """The names that any rank has, in the same order on all ranks."""
    return list(dict.fromkeys(hardware.all_gather_list(names)))
