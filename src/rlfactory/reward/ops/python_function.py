"""Importing a user's Python function, calling it with a timeout and checking its scores."""

import asyncio
import importlib
import importlib.util
import inspect
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
from rlfactory.utils.live_objects import is_reference, resolve

log = logging.getLogger(__name__)

_LARGEST = torch.finfo(torch.float32).max


def load_function(spec: str) -> tuple[Callable[..., Any], str]:
    """Import a function from `package.module:name` or `path/to/file.py:name`; `object:NAME` is one
    that a Python caller handed over.

    Returns:
        The function and its name.

    Raises:
        RewardError: The file, module or function is not there, or importing it fails.
    """
    if is_reference(spec):
        function = resolve(spec)
        return function, getattr(function, "__name__", "reward").strip("<>")
    module_path, _, name = spec.rpartition(":")
    if not module_path or not name:
        raise RewardError(
            f"reward.function={spec} is neither package.module:name nor path/to/file.py:name"
        )
    try:
        is_file = module_path.endswith(".py")
        module = _import_file(module_path) if is_file else importlib.import_module(module_path)
    except Exception as error:  # a user's file may raise anything while it is imported
        raise RewardError(
            f"reward.function={spec}: {module_path} can't be imported:"
            f" {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, name, None)
    if function is None:
        raise RewardError(f"reward.function={spec}: {module_path} has no {name}")
    if not callable(function):
        raise RewardError(f"reward.function={spec}: {name} is not a function but {function!r}")
    return function, name


def _import_file(file: str) -> ModuleType:
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    # a prefix, so that the file cannot shadow an installed module of its name
    spec = importlib.util.spec_from_file_location(f"rlfactory_function_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses find their module there
    spec.loader.exec_module(module)
    return module


def call_with_timeout(work: Callable[[], Any], timeout: float, name: str) -> Future[Any] | None:
    """The finished call of `work`; None, with an error in the log, if it raises or takes too long.

    An async function is awaited in an event loop of the call's own thread. A call that takes longer
    than `timeout` seconds is left running in its thread. `name` is the reward's, for the log.
    """
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
    """The call of `work` in a daemon thread, which does not delay the end of the process."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            result = work()
            future.set_result(asyncio.run(result) if inspect.iscoroutine(result) else result)
        except BaseException as error:  # SystemExit too: in a thread it would pass silently
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


def to_scores(values: Sequence[object], count: int, name: str, media: str) -> Tensor:
    """Scores `[count]` float32, None as NaN.

    Raises:
        RewardError: There are not `count` values, or one is no number, or too large for float32.
    """
    if len(values) != count:
        raise RewardError(f"reward {name} returned {len(values)} scores for {count} {media}")
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
