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


def in_order(values: Tensor, rows: Tensor | None, hardware: Hardware) -> Tensor:
    """The rows of all processes, each of which has those of the numbers `rows`, by number."""
    if rows is None:
        return values
    order = _order(hardware.gather(rows))
    return hardware.gather(values)[order.to(values.device)]


def texts_in_order(texts: list[str], rows: Tensor | None, hardware: Hardware) -> list[str]:
    """The same of texts."""
    if rows is None:
        return texts
    order = _order(hardware.gather(rows))
    return take(hardware.gather_texts(texts), order)


def scores_in_order(
    scores: Mapping[str, Tensor], rows: Tensor | None, hardware: Hardware
) -> dict[str, Tensor]:
    """The same of scores by name, NaN where a process has none of a name."""
    if rows is None:
        return dict(scores)
    names = _names([*scores], hardware)
    none = torch.full((len(rows),), torch.nan)
    table = torch.stack([scores.get(name, none) for name in names], 1)
    return dict(zip(names, in_order(table, rows, hardware).unbind(1), strict=True))


def gathered(rollout: Rollout, hardware: Hardware) -> Rollout:
    """What is light of all processes' samples, in the order of their numbers: all but pictures,
    latents, transitions and conditions. The rollout itself where there is one process.
    """
    if hardware.world_size == 1:
        return rollout
    rows = rollout.index

    def all_of(values: Tensor | None) -> Tensor | None:
        return None if values is None else in_order(values, rows, hardware)

    texts = rollout.texts
    return Rollout(
        prompts=texts_in_order(rollout.prompts, rows, hardware),
        metadata=[{}] * len(hardware.gather(rows)),
        groups=in_order(rollout.groups, rows, hardware),
        index=in_order(rows, rows, hardware),
        tokens=_tokens(rollout.tokens, all_of),
        texts=None if texts is None else texts_in_order(texts, rows, hardware),
        rewards=scores_in_order(rollout.rewards, rows, hardware),
        penalty=all_of(rollout.penalty),
        peers=all_of(rollout.peers),
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


def _order(numbers: Tensor) -> Tensor:
    """Where each number stands first, by number."""
    order = numbers.argsort(stable=True)
    found = numbers[order]
    return order[torch.cat([found.new_ones(1, dtype=torch.bool), found[1:] != found[:-1]])]


def _names(names: Sequence[str], hardware: Hardware) -> list[str]:
    """The names that any process has, in an order that all agree on."""
    return list(dict.fromkeys(hardware.gather_texts(names)))


def _tokens(tokens: Tokens | None, all_of: Any) -> Tokens | None:
    if tokens is None:
        return None
    return Tokens(**{f.name: all_of(getattr(tokens, f.name)) for f in fields(tokens)})


def _worthless(whole: Rollout) -> Tensor:
    """An advantage of 0, of the form that they have."""
    assert whole.advantage is not None
    return whole.advantage.new_zeros(1, *whole.advantage.shape[1:])
