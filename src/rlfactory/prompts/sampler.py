"""Which of a list's items an iteration takes: without replacement, and by arithmetic alone."""

import numpy as np


def item_indices(length: int, count: int, *, seed: int, iteration: int) -> list[int]:
    """`count` indices below `length` for an iteration, distinct if `count <= length`.

    Every epoch shuffles anew and deals out its whole batches, `length // count` of them, so within
    an epoch no item returns; the `length % count` items at its end wait for another epoch. Where
    more is asked than there is, each item comes `count // length` times or once more.
    """
    if length < 1 or count < 0:
        raise ValueError(f"cannot take {count} of {length} items")
    if count == 0:
        return []
    rounds, rest = divmod(count, length)
    if rounds:
        order = _permutation(length, seed, iteration)
        return order * rounds + order[:rest]
    epoch, batch = divmod(iteration, length // count)
    order = _permutation(length, seed, epoch)
    return order[batch * count : (batch + 1) * count]


def _permutation(length: int, seed: int, epoch: int) -> list[int]:
    return [int(i) for i in np.random.default_rng([seed, epoch]).permutation(length)]


def spread_indices(length: int, count: int) -> list[int]:
    """`count` indices evenly spread over `length` items; all of them if there are no more."""
    count = min(count, length)
    return [i * length // count for i in range(count)]
