"""What each process has of an iteration's samples, and what all of them know of all."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from rlfactory.hardware.base import Hardware
from rlfactory.nest import take
from rlfactory.rollout import Rollout, Tokens, Whole
from rlfactory.run.diversity import pairwise_distance

Measured = Mapping[str, Tensor]


def own_rows(groups: Tensor, hardware: Hardware) -> Tensor | None:
    """The rows of this process: whole groups, as evenly as they can be dealt; None is all.

    Nobody goes without: where there are fewer groups than processes, the last ones have the first
    one's too.
    """
    if hardware.world_size == 1:
        return None
    distinct = torch.unique(groups)
    mine = distinct.tensor_split(hardware.world_size)[hardware.rank]
    return torch.isin(groups, mine if len(mine) else distinct[:1]).nonzero().flatten()


class Deal:
    """How samples are dealt: this process has those of the numbers `rows`; None is all.

    What it gathers comes in the order of the numbers, each once.
    """

    def __init__(self, rows: Tensor | None, hardware: Hardware) -> None:
        self.rows, self.hardware = rows, hardware
        self._order = None if rows is None else _firsts(hardware.gather(rows))

    def all_of(self, values: Tensor) -> Tensor:
        """All processes' rows."""
        if self._order is None:
            return values
        return self.hardware.gather(values)[self._order.to(values.device)]

    def all_if(self, values: Tensor | None) -> Tensor | None:
        """The same of what need not be there, in all of them or in none."""
        return None if values is None else self.all_of(values)

    def texts(self, texts: list[str]) -> list[str]:
        """All processes' texts."""
        return (
            texts if self._order is None else take(self.hardware.gather_texts(texts), self._order)
        )

    def scores(self, scores: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All processes' scores by name, NaN where one has none of a name."""
        if self.rows is None:
            return dict(scores)
        names = _names([*scores], self.hardware)
        none = torch.full((len(self.rows),), torch.nan)
        table = self.all_of(torch.stack([scores.get(name, none) for name in names], 1))
        return dict(zip(names, table.unbind(1), strict=True))


def gathered(rollout: Rollout, hardware: Hardware) -> Rollout:
    """What is light of all processes' samples, in the order of their numbers: all but pictures,
    latents, transitions and conditions. The rollout itself where there is one process.
    """
    if hardware.world_size == 1:
        return rollout
    deal = Deal(rollout.index, hardware)
    index, tokens, texts = deal.all_of(rollout.index), rollout.tokens, rollout.texts
    if tokens is not None:
        columns: dict[str, Any] = {f.name: getattr(tokens, f.name) for f in fields(tokens)}
        every: dict[str, Any] = {name: deal.all_if(column) for name, column in columns.items()}
        tokens = Tokens(**every)
    return Rollout(
        prompts=deal.texts(rollout.prompts),
        metadata=[{}] * len(index),
        groups=deal.all_of(rollout.groups),
        index=index,
        tokens=tokens,
        texts=None if texts is None else deal.texts(texts),
        rewards=deal.scores(rollout.rewards),
        penalty=deal.all_if(rollout.penalty),
        peers=deal.all_if(rollout.peers),
    )


def own_of(rollout: Rollout, samples: Rollout) -> Rollout:
    """Those of this process's samples that are among some of all, with their worth; `samples`
    themselves where these are not of all processes' but whole.
    """
    if rollout.whole is None:
        return samples
    place = {number: row for row, number in enumerate(rollout.index.tolist())}
    there = [row for row, number in enumerate(samples.index.tolist()) if number in place]
    here = torch.tensor([place[int(samples.index[row])] for row in there], dtype=torch.int64)
    rows = torch.tensor(there, dtype=torch.int64)
    return replace(
        take(rollout, here),
        rewards=take(samples.rewards, rows),
        advantage=take(samples.advantage, rows),
        returns=take(samples.returns, rows),
        weight=samples.weight,
    )


def own_numbers(rollout: Rollout, rows: Tensor) -> Tensor:
    """Which rows of a rollout those rows of all samples are that are among them."""
    if rollout.whole is None:
        return rows
    place = {number: row for row, number in enumerate(rollout.index.tolist())}
    numbers = rollout.whole.samples.index[rows].tolist()
    return torch.tensor([place[n] for n in numbers if n in place], dtype=torch.int64)


def with_whole(rollout: Rollout, whole: Rollout) -> Rollout:
    """This process's part of all samples, which remembers them; `whole` where that is all."""
    if rollout is whole or rollout.whole is None:
        return whole
    own = own_of(rollout, whole)
    spare = take(rollout, torch.zeros(1, dtype=torch.int64))
    nothing = _worthless(whole)
    spare = replace(spare, advantage=nothing, returns=None if whole.returns is None else nothing)
    return replace(own, whole=Whole(whole, spare))


def everyones(rollout: Rollout) -> Rollout:
    """All processes' samples, of which a rollout may be a part."""
    return rollout if rollout.whole is None else rollout.whole.samples


def pooled(measured: Sequence[Measured], hardware: Hardware) -> list[Measured]:
    """What was measured in an update by all processes, one after another."""
    if hardware.world_size == 1:
        return list(measured)
    found = {name: [part[name] for part in measured] for name in (measured or [{}])[0]}
    values = {k: torch.cat([v.reshape(-1).float().cpu() for v in vs]) for k, vs in found.items()}
    names = _names([*values], hardware)
    parts = [values.get(name, torch.empty(0)) for name in names]
    sizes = hardware.gather(torch.tensor([[len(part) for part in parts]]))
    flat = hardware.gather(torch.cat(parts) if parts else torch.empty(0))
    pieces = torch.split(flat, sizes.flatten().tolist())
    return [{name: torch.cat(pieces[i :: len(names)]) for i, name in enumerate(names)}]


def picture_metrics(rollout: Rollout, hardware: Hardware) -> dict[str, float]:
    """How different the pictures are: the mean over processes, which have equally many groups."""
    if rollout.images is None or hardware.world_size == 1:
        return {}
    ours = pairwise_distance(rollout.images, rollout.groups)
    return {"diversity/pairwise": hardware.total(ours) / hardware.world_size}


def _firsts(numbers: Tensor) -> Tensor:
    """Where each number stands first, by number."""
    order = numbers.argsort(stable=True)
    found = numbers[order]
    return order[torch.cat([found.new_ones(1, dtype=torch.bool), found[1:] != found[:-1]])]


def _names(names: Sequence[str], hardware: Hardware) -> list[str]:
    """The names that any process has, in an order that all agree on."""
    return list(dict.fromkeys(hardware.gather_texts(names)))


def _worthless(whole: Rollout) -> Tensor:
    """An advantage of 0, of the form that they have."""
    assert whole.advantage is not None
    return whole.advantage.new_zeros(1, *whole.advantage.shape[1:])
