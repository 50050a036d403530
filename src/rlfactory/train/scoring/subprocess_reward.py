"""Runs a reward in subprocesses, which are killed and replaced if they hang or crash."""

import logging
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from multiprocessing.connection import Connection
from time import monotonic
from traceback import format_exception
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, RewardError, Samples, score_checked
from rlfactory.train.iteration_metrics import REWARD_ERRORS
from rlfactory.utils.errors import RemoteError, users_line
from rlfactory.utils.processes import signal_handlers
from rlfactory.utils.pytree import index_rows, merge_rows, row_chunks
from rlfactory.utils.workers import WorkerProcess

log = logging.getLogger(__name__)


@final
class SubprocessReward(Reward):
    """Another reward, made and asked in subprocesses.

    Samples of a process that dies, or takes longer than the timeout, get NaN; the process is
    replaced.

    Args:
        key: its configuration key, which error messages name.
        timeout: seconds for a batch; None for no limit.
        processes: the number of processes, which share the groups of a batch.

    Raises:
        RewardError: the reward cannot be made; later, if it raises an error.
    """

    def __init__(
        self,
        node: Mapping[str, Any],
        key: str,
        device: torch.device,
        *,
        timeout: float | None = None,
        processes: int = 1,
    ) -> None:
        self._recipe, self.timeout = (dict(node), key, str(device)), timeout
        self._workers = [_Worker(self._recipe) for _ in range(processes)]
        for worker in self._workers:
            vars(self).update(worker.metadata())

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        self._workers[0].check_prompts([*prompts])

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, NaN where a process timed out or died."""
        # there may be fewer groups than processes
        shards = _split_groups(samples.groups, len(self._workers))
        busy = list(zip(self._workers, shards, strict=False))
        for worker, rows in busy:
            worker.begin(index_rows(samples, rows))
        end = None if self.timeout is None else monotonic() + self.timeout
        parts = [(rows, self._receive(index, end)) for index, (_, rows) in enumerate(busy)]
        return merge_rows(parts, len(samples.prompts), [self.main])

    def _receive(self, index: int, end: float | None) -> Mapping[str, Tensor]:
        """A worker's scores; none if it timed out or died, and then it is replaced."""
        try:
            return self._workers[index].scores(end)
        except TimeoutError:
            log.error("reward %s gave no answer within %g s", self.main, self.timeout)
        except (EOFError, OSError):
            log.error("the process of reward %s died", self.main)
        self._workers[index].kill()
        self._workers[index] = _Worker(self._recipe)
        return {}

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.kill()


class _Worker(WorkerProcess):
    """A process that holds the reward."""

    def __init__(self, recipe: tuple[Mapping[str, Any], str, str]) -> None:
        super().__init__(_serve, *recipe, torch.get_num_threads())
        self._is_ready = False

    def metadata(self) -> dict[str, Any]:
        """The class attributes of the reward; waits until it is made."""
        self._is_ready = True
        return self._answer()

    def check_prompts(self, prompts: list[Prompt]) -> None:
        self.send(("check_prompts", prompts))
        self._answer()

    def begin(self, samples: Samples) -> None:
        if not self._is_ready:
            self.metadata()
        self.send(("score", _pack(samples)))

    def scores(self, end: float | None) -> Mapping[str, Tensor]:
        return {name: torch.from_numpy(values) for name, values in self._answer(end).items()}

    def _answer(self, end: float | None = None) -> Any:
        """The value of the next answer; RewardError if it is an error."""
        kind, value, error = self.receive(end)
        cause = None if error is None else RemoteError(*error)
        if cause is not None:
            log.error("in the process of a reward", exc_info=cause)
        if kind == "error":
            raise RewardError(value) from cause
        return value


def _told(error: BaseException | None) -> tuple[str, str | None] | None:
    """The form in which the other process is told of an exception: it may not have its class."""
    return None if error is None else ("".join(format_exception(error)), users_line(error))


def _split_groups(groups: Tensor, count: int) -> list[Tensor]:
    """The rows of at most `count` parts, none of which cuts a group."""
    distinct = torch.unique(groups)
    runs = row_chunks(len(distinct), -(-len(distinct) // count))
    return [torch.isin(groups, distinct[run]).nonzero().flatten() for run in runs]


def _pack(samples: Samples) -> dict[str, Any]:
    """Fields, tensors as numpy: through shared memory, a killed process would not free them."""
    values = ((f.name, getattr(samples, f.name)) for f in fields(samples))
    return {name: v.numpy() if isinstance(v, Tensor) else v for name, v in values}


def _unpack(packed: Mapping[str, Any]) -> Samples:
    arrays = {k: torch.from_numpy(v) for k, v in packed.items() if isinstance(v, np.ndarray)}
    return Samples(**{**packed, **arrays})


def _serve(pipe: Connection, node: Mapping[str, Any], key: str, device: str, threads: int) -> None:
    """The main function of a worker: answer requests until the pipe is closed."""
    # a session of its own: torchrun sends signals to all processes of a rank's session, and the
    # rank still needs the scores of what it has sampled
    os.setsid()
    torch.set_num_threads(threads)
    # a scheduler's signal to the whole job also reaches the parent, which decides when this process
    # ends; SIGTERM stays, as the way in which multiprocessing ends it
    numbers = (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
    try:
        with signal_handlers(signal.SIG_IGN, numbers):
            _answer_requests(pipe, node, key, device)
    except EOFError:
        sys.exit(0)
    except BaseException as error:
        known = isinstance(error, RewardError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        pipe.send(("error", text, _told(error)))


def _answer_requests(pipe: Connection, node: Mapping[str, Any], key: str, device: str) -> None:
    """Make the reward, then check prompts and score samples until the pipe is closed (EOFError)."""
    from rlfactory.config.schema.targets import instantiate
    from rlfactory.utils.current_folder import search_named_modules

    search_named_modules()
    reward: Reward = instantiate(node, key, device=torch.device(device))
    if reward.state_dict():
        raise RewardError(
            f"{type(reward).__name__} has state (running statistics), which would be lost with"
            " a process that is killed; type scoring.background=thread"
        )
    names = ("main", "media", "metadata", "best_score", "better")
    pipe.send(("metadata", {name: getattr(reward, name) for name in names}, None))
    while True:
        request, argument = pipe.recv()
        if request == "check_prompts":
            reward.check_prompts(argument)
            pipe.send(("checked", None, None))
        else:
            scores = score_checked(reward, _unpack(argument))
            values = {name: score.numpy() for name, score in scores.items()}
            pipe.send(("scores", values, _told(REWARD_ERRORS.take()[1])))
