"""What an iteration takes on N processes, by arithmetic and, where chance decides, by trial.

    t(N) = S (d + r) / N  +  S l / N * u(N)  +  U c(N)  +  f

with S samples that take d seconds to draw, r to score and l to learn from on one device, u how much
more the busiest process learns from than the mean, U updates that sum gradients in c seconds, and
f seconds that no process shares: waiting for a slow reward, evaluations' pictures, checkpoints.
u is 1 with `shares=even`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Work:
    """An iteration: `groups` of `size` samples, `updates` in all; seconds on one device to `draw`,
    `score` and `learn` from a sample; `gradient` bytes that an update sums; `is_even` where each
    update learns from equally many samples of each group.
    """

    groups: int
    size: int
    updates: int
    draw: float
    learn: float
    score: float = 0.0
    gradient: float = 0.0
    fixed: float = 0.0
    is_even: bool = False

    @property
    def samples(self) -> int:
        """In an iteration."""
        return self.groups * self.size


@dataclass(frozen=True)
class Network:
    """Between devices: `bandwidth` in bytes a second each way, `latency` in seconds a message."""

    bandwidth: float
    latency: float


def seconds(work: Work, network: Network, processes: int, trials: int = 200) -> float:
    """Of an iteration."""
    each = work.samples / processes
    learned = each * work.learn * unevenness(work, processes, trials)
    summed = work.updates * reduction(work.gradient, network, processes)
    return each * (work.draw + work.score) + learned + summed + work.fixed


def efficiency(work: Work, network: Network, processes: int, trials: int = 200) -> float:
    """How much faster than one process, by how many there are."""
    return seconds(work, network, 1) / (processes * seconds(work, network, processes, trials))


def reduction(size: float, network: Network, processes: int) -> float:
    """Seconds to sum `size` bytes in a ring: each sends them twice, but for its own part."""
    steps = 2 * (processes - 1)
    return steps * (size / processes / network.bandwidth + network.latency)


def unevenness(work: Work, processes: int, trials: int = 200, seed: int = 0) -> float:
    """What the busiest process learns from in an update, by the mean, over an iteration's updates.

    Updates take random samples of all, whoever drew them, so that they are those of one process;
    a process has more of its own in one and fewer in another, and all wait for the busiest.
    """
    if processes == 1 or work.updates == 1 or work.is_even:
        return 1.0
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(processes), work.samples // processes)
    found = [_busiest(rng.permutation(owner), work.updates, processes) for _ in range(trials)]
    return float(np.mean(found)) * processes / work.samples


def _busiest(owners: "np.ndarray[tuple[int], np.dtype[np.int64]]", updates: int, count: int) -> int:
    """Samples of the busiest process in each update, summed over the updates."""
    shares: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]] = np.array_split(owners, updates)
    return sum(int(np.bincount(share, minlength=count).max()) for share in shares)
