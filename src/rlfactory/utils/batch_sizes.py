"""How many samples pass the network together, from the numbers of a configuration. No torch."""

from collections.abc import Iterator

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
