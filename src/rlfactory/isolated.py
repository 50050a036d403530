"""A reward in processes of its own, which can be killed."""

import logging
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, final

import torch
from torch import Tensor

from rlfactory.nest import chunks, take
from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, RewardError, Samples

log = logging.getLogger(__name__)


@final
class Isolated(Reward):
    """The scores of another reward, made and asked in `processes`, which share the samples.

    A process that takes longer than `timeout` seconds, or dies, is replaced, and its samples have
    no score. RewardError where the reward can't be made, or raises an error.
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
        facts = [worker.facts() for worker in self._workers][0]
        self.main = facts["main"]
        self.media = facts["media"]  # type: ignore[misc]
        self.metadata = facts["metadata"]  # type: ignore[misc]
        self.good = facts["good"]  # type: ignore[misc]

    def require(self, prompts: Iterable[Prompt]) -> None:
        """What the reward itself requires, asked of one process."""
        self._workers[0].require([*prompts])

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, NaN where a process was late or died."""
        busy = list(zip(self._workers, _shares(samples.groups, len(self._workers)), strict=False))
        for worker, rows in busy:
            worker.send(take(samples, rows))
        end = None if self.timeout is None else monotonic() + self.timeout
        found: dict[str, Tensor] = {self.main: torch.full((len(samples.prompts),), torch.nan)}
        for index, (worker, rows) in enumerate(busy):
            for name, scores in self._answer(index, worker, end).items():
                found.setdefault(name, torch.full_like(found[self.main], torch.nan))[rows] = scores
        return found

    def _answer(self, index: int, worker: "_Worker", end: float | None) -> Mapping[str, Tensor]:
        """A worker's scores; none where it was late or died, and another takes its place."""
        try:
            return worker.scores(end)
        except TimeoutError:
            log.error("reward %s gave no answer within %g s", self.main, self.timeout)
        except (EOFError, OSError):
            log.error("the process of reward %s died", self.main)
        worker.kill()
        self._workers[index] = _Worker(self._recipe)
        return {}

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.kill()


class _Worker:
    """A process that holds the reward.

    It is forked off a server that has torch and nothing else: quickly, so that one that was killed
    is soon replaced, and without the state of our GPU and threads.
    """

    def __init__(self, recipe: tuple[Mapping[str, Any], str, str]) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(["rlfactory.isolated"])
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, *recipe, torch.get_num_threads())
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()  # so that a process that dies is an end of file here
        self._is_ready = False

    def facts(self) -> dict[str, Any]:
        """What the reward says of itself, once it is made."""
        self._is_ready = True
        return _received(self._pipe)  # type: ignore[no-any-return]

    def require(self, prompts: list[Prompt]) -> None:
        self._pipe.send(("require", prompts))
        _received(self._pipe)

    def send(self, samples: Samples) -> None:
        if not self._is_ready:
            self.facts()
        try:
            self._pipe.send(("score", _packed(samples)))
        except OSError:  # it died since; whoever waits for the answer is told
            return

    def scores(self, end: float | None) -> Mapping[str, Tensor]:
        if end is not None and not self._pipe.poll(max(end - monotonic(), 0)):
            raise TimeoutError
        return {name: torch.from_numpy(values) for name, values in _received(self._pipe).items()}

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _received(pipe: Connection) -> Any:
    said, value = pipe.recv()
    if said == "error":
        log.error("in the process of a reward:\n%s", value[1])
        raise RewardError(value[0])
    return value


def _shares(groups: Tensor, count: int) -> list[Tensor]:
    """The rows of at most `count` shares of whole groups."""
    distinct = torch.unique(groups)
    runs = chunks(len(distinct), -(-len(distinct) // count))
    return [torch.isin(groups, distinct[run]).nonzero().flatten() for run in runs]


def _packed(samples: Samples) -> tuple[Samples, Any]:
    """Without tensors, which would go by shared memory that a killed process leaves behind."""
    images = None if samples.images is None else samples.images.numpy()
    bare = replace(samples, groups=samples.groups.tolist(), images=None)  # type: ignore[arg-type]
    return bare, images


def _unpacked(bare: Samples, images: Any) -> Samples:
    pictures = None if images is None else torch.from_numpy(images)
    return replace(bare, groups=torch.tensor(bare.groups, dtype=torch.int64), images=pictures)


def _serve(pipe: Connection, node: Mapping[str, Any], key: str, device: str, threads: int) -> None:
    """Make the reward and answer until nobody asks any more."""
    # whoever asks is told as well, and ends this one; of SIGTERM it must be possible to die
    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(threads)
    try:
        from rlfactory.targets import instantiate

        reward: Reward = instantiate(node, key, device=torch.device(device))
        if reward.state_dict():
            raise RewardError(
                f"{type(reward).__name__} remembers what it saw, and a process that can be killed"
                " would forget it; type scoring.background=thread"
            )
        names = ("main", "media", "metadata", "good")
        pipe.send(("facts", {name: getattr(reward, name) for name in names}))
        while True:
            asked, of = pipe.recv()
            if asked == "require":
                reward.require(of)
                pipe.send(("required", None))
            else:
                scores = reward.score(_unpacked(*of))
                pipe.send(("scores", {name: values.numpy() for name, values in scores.items()}))
    except EOFError:
        sys.exit(0)
    except BaseException as error:
        known = isinstance(error, RewardError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        pipe.send(("error", (text, traceback.format_exc())))
