"""Requests that come together are scored together, by one thread: models are not thread-safe."""

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from time import monotonic

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, judge
from rlfactory.serve.refusal import Refusal

log = logging.getLogger(__name__)

Scores = dict[str, Tensor]


@dataclass(frozen=True, eq=False)  # tensors have no equality to look a job up by
class Job:
    """Samples that somebody waits for."""

    samples: Samples
    done: "Future[Scores]" = field(default_factory=Future)

    def __len__(self) -> int:
        return len(self.samples.prompts)

    @property
    def shape(self) -> object:
        """Jobs go together where this is the same: pictures of one size."""
        images = self.samples.images
        return None if images is None else images.shape[1:]


class Batcher:
    """Scores with `reward`, at most `max_batch` samples at once unless a single job has more.

    A job waits at most `wait` seconds for others; `queue` jobs wait at most.
    """

    def __init__(self, reward: Reward, *, max_batch: int, wait: float, queue: int) -> None:
        self.reward = reward
        self.max_batch = max_batch
        self.wait = wait
        self.queue = queue
        self._jobs: deque[Job] = deque()
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._run, name="rewards", daemon=True)
        self._thread.start()

    def submit(self, samples: Samples) -> "Future[Scores]":
        """The scores to come; a Refusal where the queue is full."""
        job = Job(samples)
        with self._changed:
            if self._closed:
                raise Refusal(503, "the server is shutting down", retry_after=5)
            if len(self._jobs) >= self.queue:
                raise Refusal(503, f"{self.queue} requests are waiting already", retry_after=1)
            self._jobs.append(job)
            self._changed.notify()
        return job.done

    def close(self, timeout: float | None = None) -> None:
        """Take no more jobs, and finish those that wait, for `timeout` seconds at most."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        while jobs := self._gather():
            self._finish(jobs)
            del jobs  # a thread that waits for the next ones holds none of the last

    def _gather(self) -> list[Job]:
        """The next jobs, the oldest first; none once the batcher is closed and has no more."""
        with self._changed:
            while not self._jobs and not self._closed:
                self._changed.wait()
            if not self._jobs:
                return []
            jobs, until = [self._jobs.popleft()], monotonic() + self.wait
            while True:
                self._add_fitting(jobs)
                rest = until - monotonic()
                if sum(map(len, jobs)) >= self.max_batch or rest <= 0 or self._closed:
                    return jobs
                self._changed.wait(rest)

    def _add_fitting(self, jobs: list[Job]) -> None:
        size = sum(map(len, jobs))
        for job in [*self._jobs]:
            if job.shape == jobs[0].shape and size + len(job) <= self.max_batch:
                self._jobs.remove(job)
                jobs.append(job)
                size += len(job)

    def _finish(self, jobs: Sequence[Job]) -> None:
        """Score, all together or, where that fails, each alone: one request spoils no other."""
        try:
            scores = judge(self.reward, together([job.samples for job in jobs]))
        except BaseException as error:  # sys.exit() in a reward must not end the thread
            if len(jobs) > 1:
                for job in jobs:
                    self._finish([job])
                return
            log.error("the reward failed", exc_info=error)
            said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            jobs[0].done.set_exception(Refusal(500, f"the reward raised {said}"))
            return
        start = 0
        for job in jobs:
            rows = slice(start, start + len(job))
            job.done.set_result({name: values[rows] for name, values in scores.items()})
            start += len(job)


def together(parts: Sequence[Samples]) -> Samples:
    """Samples in one; groups of different parts stay different. Each part's begin at 0."""
    groups, start = [], 0
    for part in parts:
        groups.append(part.groups + start)
        start += int(part.groups.max()) + 1
    images = [part.images for part in parts if part.images is not None]
    texts = [text for part in parts for text in part.texts or []]
    return Samples(
        prompts=[prompt for part in parts for prompt in part.prompts],
        metadata=[row for part in parts for row in part.metadata],
        groups=torch.cat(groups),
        images=torch.cat(images) if images else None,
        texts=None if parts[0].texts is None else texts,
    )
