"""Rewards computed in the background, while the next samples are drawn."""

import math
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from types import TracebackType

import torch
from torch import Tensor

from rlfactory.nest import join, take
from rlfactory.placement import Placement
from rlfactory.reward.base import RewardError, Samples

Scores = dict[str, Tensor]
Judge = Callable[[Samples], Scores]
POLL = 0.1
"""Seconds between two looks at whether there is still something to wait for."""


def ignore(count: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Scorer:
    """How samples are scored: in the `background` or when the scores are asked for.

    `timeout` is in seconds, of each batch in the background; `placement` says where the networks of
    rewards are. `advance` is called, with 0, while scores are waited for; it may raise.
    """

    background: bool = True
    timeout: float | None = None
    placement: Placement | None = None
    advance: Callable[[int], None] = ignore

    def begin(self, judge: Judge, size: int = 1) -> "Gathering":
        """Samples are added as they are drawn, each group of `size` one after another."""
        return Gathering(judge, size, self)


class Gathering:
    """The scores of samples that are still being drawn; use it within `with`.

    Whole groups go to the judge, one batch after another, in the order of drawing, in one thread;
    so a reward need not be safe for several. The same batches are scored without a background.
    """

    def __init__(self, judge: Judge, size: int, scorer: Scorer) -> None:
        self._judge, self._size, self._scorer = judge, size, scorer
        self._waiting: list[Samples] = []
        self._results: list[Callable[[], Scores]] = []
        self._futures: list[Future[Scores]] = []
        self._line: _Line | None = None
        self._busy = self._waited = 0.0

    def __enter__(self) -> "Gathering":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """What was not begun is not scored any more."""
        self._end()

    def _end(self) -> None:
        """Free the thread, and the device."""
        if self._line is not None:
            self._line.end()
        if self._scorer.placement is not None:
            self._scorer.placement.away()

    def add(self, samples: Samples) -> None:
        """Take up what was drawn; an error of an earlier batch is raised as soon as it is known."""
        self._waiting.append(samples)
        count = sum(len(part.prompts) for part in self._waiting)
        whole = count - count % self._size
        if whole:
            together = join(self._waiting)
            self._waiting = [take(together, torch.arange(whole, count))] if whole < count else []
            self._send(take(together, torch.arange(whole)))
        for future in self._futures:
            if future.done():
                future.result()

    def scores(self) -> Scores:
        """All of them by name, in the order in which the samples were added; waits where it must.

        A batch that lacks a score that others have gets NaN in its place.
        """
        if self._waiting:
            self._send(join(self._waiting))
            self._waiting = []
        begun = perf_counter()
        found = [result() for result in self._results]
        self._waited += perf_counter() - begun
        self._end()
        return _joined(found)

    @property
    def hidden(self) -> float:
        """Seconds of scoring that nobody waited for."""
        return max(self._busy - self._waited, 0.0)

    def _send(self, samples: Samples) -> None:
        work = partial(self._score, samples)
        if not self._scorer.background:
            self._results.append(work)
            return
        if self._line is None:
            self._line = _Line()
        future = self._line.call(work)
        self._futures.append(future)
        self._results.append(partial(_answer, future, self._scorer))

    def _score(self, samples: Samples) -> Scores:
        begun = perf_counter()
        if self._scorer.placement is not None:
            self._scorer.placement.here()
        try:
            return self._judge(samples)
        except SystemExit as error:  # it must not end the run unseen
            raise RewardError(f"a reward called sys.exit({error.code})") from error
        finally:
            self._busy += perf_counter() - begun


def _answer(future: Future[Scores], scorer: Scorer) -> Scores:
    end = math.inf if scorer.timeout is None else perf_counter() + scorer.timeout
    while not wait([future], max(min(POLL, end - perf_counter()), 0)).done:
        scorer.advance(0)
        if perf_counter() >= end:
            raise RewardError(
                f"a reward gave no answer within scoring.timeout={scorer.timeout:g} s; a process"
                " can be killed where a thread can't: scoring.background=process goes on without"
                " those samples"
            )
    return future.result()


def _joined(found: list[Scores]) -> Scores:
    names = dict.fromkeys(name for scores in found for name in scores)
    rows = [next(iter(scores.values())) for scores in found]
    return {
        name: torch.cat(
            [s.get(name, torch.full_like(r, torch.nan)) for s, r in zip(found, rows, strict=True)]
        )
        for name in names
    }


class _Line:
    """A daemon thread, which a process that ends does not wait for, that makes calls in turn."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Scores], Callable[[], Scores]] | None] = SimpleQueue()
        self._ended = False
        # a thread begins with the machine's number of threads, not with its maker's
        Thread(target=self._work, args=(torch.get_num_threads(),), daemon=True).start()

    def call(self, work: Callable[[], Scores]) -> Future[Scores]:
        future: Future[Scores] = Future()
        self._calls.put((future, work))
        return future

    def end(self) -> None:
        """No further call is begun."""
        self._ended = True
        self._calls.put(None)

    def _work(self, threads: int) -> None:
        torch.set_num_threads(threads)
        while (call := self._calls.get()) is not None and not self._ended:
            future, work = call
            try:
                future.set_result(work())
            except BaseException as error:  # whoever waits gets it
                future.set_exception(error)
