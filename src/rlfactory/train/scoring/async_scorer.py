"""Computes rewards in a background thread, while the next samples are drawn."""

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from time import perf_counter

import torch
from torch import Tensor, nn

from rlfactory.model.memory import OffloadedModules
from rlfactory.reward.base import Reward, RewardError, Samples
from rlfactory.utils.pytree import concat, index_rows, merge_rows
from rlfactory.utils.workers import WorkerThread

Scores = dict[str, Tensor]
ScoreFunction = Callable[[Samples], Scores]
POLL = 0.1
"""Seconds between two calls of `advance` while scores are waited for."""


def networks_of(value: object, seen: set[int] | None = None) -> list[nn.Module]:
    """Each network in an attribute of a reward, or of an object of this package in one, once.

    `value` may be a list of rewards; nothing in `seen`, by its id, is looked at again.
    """
    seen = set() if seen is None else seen
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, nn.Module):
        return [value]
    items: Iterable[object] = ()
    if isinstance(value, Mapping):
        items = value.values()
    elif isinstance(value, list | tuple):
        items = value
    elif isinstance(value, Reward) or type(value).__module__.startswith("rlfactory."):
        items = getattr(value, "__dict__", {}).values()
    return [network for item in items for network in networks_of(item, seen)]


@dataclass(frozen=True)
class Scorer:
    """How and when samples are scored.

    Attributes:
        background: score while samples are drawn; otherwise when the scores are asked for.
        timeout: seconds to wait for a batch in the background, None for no limit.
        offloader: moves the networks of rewards to their device and back.
        advance: called with 0 every `POLL` seconds of waiting; it may raise, to stop.
    """

    background: bool = True
    timeout: float | None = None
    offloader: OffloadedModules | None = None
    advance: Callable[[int], None] | None = None

    def begin(self, score: ScoreFunction, size: int = 1) -> "closing[PendingScores]":
        """Score samples, which come in groups of `size`, one after another.

        At the end of the `with`, batches whose scoring has not begun are dropped.
        """
        return closing(PendingScores(score, size, self))


class PendingScores:
    """The scores of samples that are still being drawn.

    Complete groups are scored one batch after another, in the order in which they were added, in
    one thread, so that a reward need not be thread-safe. Batches are the same without a background.
    """

    def __init__(self, score: ScoreFunction, size: int, scorer: Scorer) -> None:
        self._score_function, self._size, self._scorer = score, size, scorer
        self._incomplete: list[Samples] = []
        self._batches: list[Future[Scores] | Callable[[], Scores]] = []
        self._thread: WorkerThread | None = None
        self._busy = self._waited = 0.0

    def close(self) -> None:
        """Let go of the thread and of the device."""
        if self._thread is not None:
            self._thread.end()
        if self._scorer.offloader is not None:
            self._scorer.offloader.offload()

    def add(self, samples: Samples) -> None:
        """Add samples that were drawn.

        Raises:
            RewardError: or another error of a reward, on an earlier batch.
        """
        self._incomplete.append(samples)
        count = sum(len(batch.prompts) for batch in self._incomplete)
        complete = count - count % self._size
        if complete:
            drawn, self._incomplete = concat(self._incomplete), []
            if complete < count:
                self._incomplete = [index_rows(drawn, torch.arange(complete, count))]
            self._submit(index_rows(drawn, torch.arange(complete)))
        for batch in self._batches:
            if isinstance(batch, Future) and batch.done():
                batch.result()

    def scores(self) -> Scores:
        """Wait for all scores; each `[B]`, by name, in the order in which samples were added.

        A batch that lacks a score that another batch has gets NaN.
        """
        if self._incomplete:
            self._submit(concat(self._incomplete))
            self._incomplete = []
        begun = perf_counter()
        batches = [
            _wait(batch, self._scorer) if isinstance(batch, Future) else batch()
            for batch in self._batches
        ]
        self._waited += perf_counter() - begun
        self.close()
        ends = [*accumulate((len(next(iter(b.values()), ())) for b in batches), initial=0)]
        rows = [slice(*ends_of) for ends_of in pairwise(ends)]
        return merge_rows(zip(rows, batches, strict=True), ends[-1])

    @property
    def overlapped_seconds(self) -> float:
        """Seconds of scoring that took place while samples were drawn."""
        return max(self._busy - self._waited, 0.0)

    def _submit(self, samples: Samples) -> None:
        work = partial(self._score, samples)
        if self._scorer.background:
            self._thread = self._thread or _worker_thread()
        self._batches.append(self._thread.submit(work) if self._thread else work)

    def _score(self, samples: Samples) -> Scores:
        begun = perf_counter()
        if self._scorer.offloader is not None:
            self._scorer.offloader.load()
        try:
            return self._score_function(samples)
        except SystemExit as error:  # in a thread it would end nothing, and the run would hang
            raise RewardError(f"a reward called sys.exit({error.code})") from error
        finally:
            self._busy += perf_counter() - begun


def _wait(future: Future[Scores], scorer: Scorer) -> Scores:
    """The result of a batch, within the scorer's timeout."""
    end = math.inf if scorer.timeout is None else perf_counter() + scorer.timeout
    while not wait([future], max(min(POLL, end - perf_counter()), 0)).done:
        if scorer.advance is not None:
            scorer.advance(0)
        if perf_counter() >= end:
            raise RewardError(
                f"a reward gave no answer within scoring.timeout={scorer.timeout:g} s; a thread"
                " can't be killed, but a process can: with scoring.background=process the run"
                " continues without those samples"
            )
    return future.result()


def _worker_thread() -> WorkerThread:
    """A thread with what is a thread's own, and that of the machine in a new one: torch's number of
    threads, and the GPU that "cuda" means, which rewards of others may name.
    """
    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    gpu = torch.cuda.current_device() if on_gpu else None
    threads = torch.get_num_threads()

    def prepare() -> None:
        torch.set_num_threads(threads)
        if gpu is not None:
            torch.cuda.set_device(gpu)

    return WorkerThread("rewards", prepare)
