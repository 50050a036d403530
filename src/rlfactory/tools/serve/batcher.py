"""Batches requests and scores them in one thread, since models are not thread-safe."""

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from threading import Condition
from time import monotonic

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, score_checked
from rlfactory.tools.serve.limits import Refusal
from rlfactory.utils.workers import WorkerThread

log = logging.getLogger(__name__)

Scores = dict[str, Tensor]


@dataclass(frozen=True, eq=False)  # tensors have no equality to look a job up by
class QueuedRequest:
    """Samples to score, and the future of their scores."""

    samples: Samples
    done: "Future[Scores]" = field(default_factory=Future)

    def __len__(self) -> int:
        return len(self.samples.prompts)

    @property
    def shape(self) -> object:
        """Requests of equal shape can be in one batch: images of one size."""
        images = self.samples.images
        return None if images is None else images.shape[1:]


class Batcher:
    """Scores queued requests in batches.

    Args:
        reward: scores the samples.
        max_batch: samples per batch; a request of more is a batch of its own.
        wait: seconds that a request waits for others.
        queue: requests that may wait.
    """

    def __init__(self, reward: Reward, *, max_batch: int, wait: float, queue: int) -> None:
        self.reward = reward
        self.max_batch = max_batch
        self.wait = wait
        self.queue = queue
        self._jobs: deque[QueuedRequest] = deque()
        self._changed = Condition()
        self._closed = False
        self._worker = WorkerThread("rewards")

    def submit(self, samples: Samples) -> "Future[Scores]":
        """Queue samples; returns the future of their scores. Refusal (503) if the queue is full."""
        job = QueuedRequest(samples)
        with self._changed:
            if self._closed:
                raise Refusal(503, "the server is shutting down", retry_after=5)
            if len(self._jobs) >= self.queue:
                raise Refusal(503, f"{self.queue} requests are waiting already", retry_after=1)
            self._jobs.append(job)
            self._changed.notify()
            self._worker.submit(self._serve)
        return job.done

    def close(self, timeout: float | None = None) -> None:
        """Refuse further requests, and finish those that wait, for `timeout` seconds at most."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            last = self._worker.submit(lambda: None)
        if wait([last], timeout).done:
            self._worker.end()

    def _serve(self) -> None:
        """Score a batch, unless an earlier one had all that waits."""
        if jobs := self._next_batch():
            self._finish(jobs)

    def _next_batch(self) -> list[QueuedRequest]:
        """Wait until a batch is full or has waited, the oldest request first; [] without one."""
        with self._changed:
            if not self._jobs:
                return []
            jobs, until = [self._jobs.popleft()], monotonic() + self.wait
            while True:
                self._add_fitting(jobs)
                left = until - monotonic()
                if sum(map(len, jobs)) >= self.max_batch or left <= 0 or self._closed:
                    return jobs
                self._changed.wait(left)

    def _add_fitting(self, jobs: list[QueuedRequest]) -> None:
        size = sum(map(len, jobs))
        for job in [*self._jobs]:
            if job.shape == jobs[0].shape and size + len(job) <= self.max_batch:
                self._jobs.remove(job)
                jobs.append(job)
                size += len(job)

    def _finish(self, jobs: Sequence[QueuedRequest]) -> None:
        """Score requests in one batch or, if that raises, each alone: only faulty ones fail."""
        try:
            scores = score_checked(self.reward, merge([job.samples for job in jobs]))
        except BaseException as error:  # sys.exit() in a reward must not end the thread
            if len(jobs) > 1:
                for job in jobs:
                    self._finish([job])
                return
            log.error("the reward failed", exc_info=error)
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            jobs[0].done.set_exception(Refusal(500, f"the reward raised {reason}"))
            return
        start = 0
        for job in jobs:
            rows = slice(start, start + len(job))
            job.done.set_result({name: values[rows] for name, values in scores.items()})
            start += len(job)


def merge(requests: Sequence[Samples]) -> Samples:
    """The samples of several requests as one; groups, which each counts from 0, stay separate."""
    groups, start = [], 0
    for request in requests:
        groups.append(request.groups + start)
        start += int(request.groups.max()) + 1
    images = [r.images for r in requests if r.images is not None]
    texts = [text for r in requests for text in r.texts or []]
    return Samples(
        prompts=[prompt for r in requests for prompt in r.prompts],
        metadata=[row for r in requests for row in r.metadata],
        groups=torch.cat(groups),
        images=torch.cat(images) if images else None,
        texts=None if requests[0].texts is None else texts,
    )
