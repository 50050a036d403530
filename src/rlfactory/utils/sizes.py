"""Sizes of passes, of batches and of trees of trajectories (BranchGRPO)."""

from collections.abc import Collection, Iterator, Sequence

NO_SPLIT = -1
"""The last split of a tree without one: all of its steps come after it."""


def branching_factor(branches: int, splits: int) -> int:
    """How many children a node has at a split, for `branches` leaves after all `splits`.

    Raises:
        ValueError: No whole number, to the power of `splits`, is `branches`.
    """
    factor = round(branches ** (1 / splits)) if splits else 1
    if factor**splits != branches:
        raise ValueError(f"{branches} leaves are no power of {splits} for any number of children")
    return factor


def nodes_after(step: int, branches: int, splits: Sequence[int]) -> int:
    """How many nodes a tree has after a sampling step; it ends with `branches` leaves."""
    return int(branching_factor(branches, len(splits)) ** sum(split <= step for split in splits))


def skipped_steps(
    steps: Sequence[int], iteration: int, every: int | None, stop: int
) -> Sequence[int]:
    """Depth pruning: the sampling steps that are not learned from in an iteration.

    Args:
        steps: Those of the first iteration.
        iteration: Number of the iteration, from 0.
        every: Iterations after which all of them move by one towards noise; None: they never move.
        stop: The first of them moves no further than to this step.
    """
    if not steps or every is None:
        return steps
    shift = min(iteration // every, max(0, min(steps) - stop))
    return [step - shift for step in steps]


def kept_children(width: str, share: float, factor: int, leaves: int) -> int:
    """Width pruning: how many of a group's leaves are learned from after the last split.

    Args:
        width: `none`; `best_child`: `share` of the children of each last split, at least one;
            `extremes`: `share` of the group's leaves, at least two.
        share: The share that is kept.
        factor: Children of a split.
        leaves: Leaves of the group.
    """
    if width == "best_child":
        return max(1, int(share * factor)) * (leaves // factor)
    return min(leaves, max(2, int(share * leaves))) if width == "extremes" else leaves


def edges_per_leaf(
    steps: Collection[int],
    branches: int,
    splits: Sequence[int],
    *,
    kept: float = 1.0,
) -> float:
    """Training items of a tree for each of its leaves: one for each edge of the stochastic `steps`.

    `kept` is the share of the leaves that is learned from after the last split.
    """
    last = max(splits, default=NO_SPLIT)
    shares = (1.0 if step <= last or not splits else kept for step in steps)
    nodes = (nodes_after(step, branches, splits) for step in steps)
    return sum(n * share for n, share in zip(nodes, shares, strict=True)) / branches


MAX_LOGITS = {"cpu": 2**25, "cuda": 2**28}
"""How many logits are held at once: 128 MiB and 1 GiB in float32 for each array of them, of which
learning needs about eight. So memory does not grow with the vocabulary.
"""
CHUNKS = 4
"""Where a pass has more logits than these, they are computed in chunks of this share of them."""
PIXELS_TOGETHER = 1024**2
"""Pixels of images that are decoded together, at most; a larger image is decoded alone."""
LARGEST_TILE = 512
"""Pixels of a tile's edge; of autoencoders trained on smaller images, it is those images' edge."""
DIVERSITY_PROMPTS, DIVERSITY_SAMPLES = 16, 4
"""An evaluation also draws so many samples of each of its first prompts, for `eval/diversity`."""


def chunk_sizes(count: int, size: int) -> Iterator[int]:
    """The sizes of `count` things taken `size` at a time."""
    for start in range(0, count, size):
        yield min(size, count - start)


def samples_per_start(branches: int, steps: int, branch_at: str) -> int:
    """How many consecutive samples start from the same noise.

    Args:
        branches: Samples from each place where trajectories branch.
        steps: Stochastic steps.
        branch_at: `window`: all branch before the first of these; `step`: at each of them.
    """
    return branches * (steps if branch_at == "step" else 1)


def samples_together(sample_batch: int, per_start: int) -> int:
    """How many samples are drawn for one batch of rewards: those of complete starts.

    It may be more than `sample_batch`; passes of the network and of the decoder never have more
    rows than that.
    """
    return max(sample_batch // per_start, 1) * per_start


def sampling_passes(
    samples: int, sample_batch: int, *, branches: int = 1, steps: int = 1, branch_at: str = "window"
) -> set[int]:
    """The numbers of samples in the passes that draw stochastic steps.

    Args:
        samples: Those of one process.
        sample_batch: The most that pass together, here and where images are decoded.
        branches: See `samples_per_start`, as `steps` and `branch_at`.
    """
    unit = samples_together(sample_batch, samples_per_start(branches, steps, branch_at))
    slots = steps if branch_at == "step" else 1
    return {
        rows
        for together in chunk_sizes(samples, unit)
        for rows in chunk_sizes(together // slots, sample_batch)
    }


def learning_passes(items: int, updates: int, micro_batch: int) -> set[int]:
    """The numbers of items in the micro-batches of an epoch of one process."""
    return set(chunk_sizes(items // updates, micro_batch))
