"""What rewards that are a Python function of one's own share: finding, calling and reading it."""

import importlib
import importlib.util
import logging
import math
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from numbers import Real
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from rlfactory.reward.base import RewardError

log = logging.getLogger(__name__)

_LARGEST = torch.finfo(torch.float32).max


def load_function(spec: str) -> tuple[Callable[..., Any], str]:
    """A function and its name, from `package.module:name` or `path/to/file.py:name`."""
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise RewardError(
            f"reward.function={spec} is neither package.module:name nor path/to/file.py:name"
        )
    try:
        module = _from_file(place) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:  # whatever a file does when it is imported
        raise RewardError(
            f"reward.function={spec}: {place} can't be imported: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, name, None)
    if function is None:
        raise RewardError(f"reward.function={spec}: {place} has no {name}")
    if not callable(function):
        raise RewardError(f"reward.function={spec}: {name} is no function, but {function!r}")
    return function, name


def _from_file(place: str) -> ModuleType:
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    # no name that could stand for an installed module
    spec = importlib.util.spec_from_file_location(f"rlfactory_function_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def answer(work: Callable[[], Any], timeout: float, name: str) -> Future[Any] | None:
    """What a call came to, done; None where it raised an error or took longer, which is logged."""
    future = _in_thread(work)
    try:
        error = future.exception(timeout)
    except TimeoutError:
        log.error("reward %s gave no answer within %g s", name, timeout)
        return None
    if error is not None:
        log.error("reward %s raised an exception", name, exc_info=error)
        return None
    return future


def _in_thread(work: Callable[[], Any]) -> Future[Any]:
    """Call in a daemon thread, which a process that ends does not wait for."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # sys.exit() in a function must not end the run unseen
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


def numbers(values: Sequence[object], count: int, name: str, of: str) -> Tensor:
    """Scores `[count]` float32, None as NaN; RewardError unless there is a number for each."""
    if len(values) != count:
        raise RewardError(f"reward {name} returned {len(values)} scores for {count} {of}")
    return torch.tensor([_number(value, i, name) for i, value in enumerate(values)]).float()


def _number(value: object, index: int, name: str) -> float:
    if value is None:
        return math.nan
    if not isinstance(value, Real):
        raise RewardError(
            f"reward {name}: score {index} is {value!r}; a score is a number, or None"
        )
    number = float(value)
    if abs(number) > _LARGEST:
        raise RewardError(f"reward {name}: score {index} is {value}; a score is finite, or None")
    return number
