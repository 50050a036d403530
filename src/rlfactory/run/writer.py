"""Writing while training goes on: one thread, one job at a time, and no error lost."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Writer:
    """Does jobs in the order in which they are given, in a thread where it is in `background`.

    A new job waits for the one before. An error of a job is raised by the next call of any kind.
    """

    def __init__(self, *, background: bool = True) -> None:
        self._pool = ThreadPoolExecutor(1, "checkpoint") if background else None
        self._last: Future[None] | None = None

    def do(self, job: Callable[[], None]) -> None:
        """Begin a job, once the one before is done."""
        self.wait()
        if self._pool is None:
            job()
        else:
            self._last = self._pool.submit(job)

    def check(self) -> None:
        """Raise the error of a job that has ended with one; doesn't wait."""
        if self._last is not None and self._last.done():
            self.wait()

    def wait(self) -> None:
        """Until nothing is left to be written."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Wait, and let the thread go."""
        try:
            self.wait()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
