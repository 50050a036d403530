"""Importing a user's Python function, calling it with a timeout and reading its scores."""

import asyncio
import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cache
from numbers import Number
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from rlfactory.reward.base import RewardError, as_scores
from rlfactory.utils.live_objects import is_reference, resolve
from rlfactory.utils.workers import WorkerThread

log = logging.getLogger(__name__)


def load_function(spec: str) -> tuple[Callable[..., Any], str]:
    """The function `package.module:name` or `path/to/file.py:name`, and its name; `object:NAME` is
    one that a Python caller handed over.

    RewardError where file, module or function is not there, or importing it fails.
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


def made_by(maker: Callable[..., Any], name: str, **given: object) -> Callable[..., Any]:
    """The result of a user's class or factory; RewardError if it raises, or can't be called."""
    try:
        made: Callable[..., Any] = maker(**given)
    except Exception as error:  # the user's code
        message = f"{name} raised {type(error).__name__} where it makes the function: {error}"
        raise RewardError(f"reward.function: {message}") from error
    if not callable(made):
        raise RewardError(f"reward.function: {name} makes {made!r}, which can't be called")
    return made


def made_function(
    found: Callable[..., Any], name: str, given: tuple[str, ...], device: torch.device
) -> tuple[Callable[..., Any], bool]:
    """A function that is called with `given` by position, and whether `found` is what makes it: a
    class, or a factory as in ddpo-pytorch and flow_grpo, which takes nothing or `device`.

    RewardError where `found` is neither, or raises.
    """
    if not (fault := _fault(found, *given)):
        return found, False
    named = next((n for n in ({"device": device}, {}) if not _fault(found, **n)), None)
    made = None if named is None else made_by(found, name, **named)
    if made is None or _fault(made, *given):
        raise RewardError(
            f"reward.function: {name} is called with ({', '.join(given)}): {fault};"
            " what makes such a function takes nothing, or device"
        )
    return made, True


def _fault(function: Callable[..., Any], *given: object, **named: object) -> str:
    """Why a function can't be called with these; empty where it can, or is written in C."""
    if not isinstance(function, type):
        function = getattr(function, "forward", function)  # a module's own call takes anything
    try:
        inspect.signature(function).bind(*given, **named)
    except TypeError as error:
        return str(error)
    except ValueError:  # its parameters are not known
        pass
    return ""


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


def call_with_timeout(
    work: Callable[[], Any], timeout: float, name: str, count: int
) -> dict[str, Tensor]:
    """The scores `[count]` by name that `work` returns; all NaN, with an error in the log, if it
    raises or takes longer than `timeout` seconds.

    An async function is awaited in the event loop of all calls, and cancelled when it takes too
    long; another call is left running in its thread. RewardError where it returns what
    `function_scores` refuses.
    """
    awaited = list[Future[Any]]()

    def call() -> dict[str, Tensor]:
        returned = work()
        if inspect.iscoroutine(returned):
            awaited.append(asyncio.run_coroutine_threadsafe(returned, _event_loop()))
            returned = awaited[0].result()
        # part of the call: what is returned may be a generator of the user's
        return function_scores(returned, count, name)

    worker = WorkerThread(f"reward {name}")
    future = worker.submit(call)
    try:
        error = future.exception(timeout)
    except TimeoutError:
        log.error("reward %s gave no answer within %g s", name, timeout)
        for asked in awaited:
            asked.cancel()
            turn = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), _event_loop())
            if wait([turn], 1).not_done:
                _event_loop.cache_clear()  # something in it does not return
        error = None
    else:
        if error is None:
            return future.result()
        if isinstance(error, RewardError):
            raise error
        log.error("reward %s raised an exception", name, exc_info=error)
    finally:
        worker.end()
    return {name: torch.full((count,), torch.nan)}


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process's async functions, in a thread of its own.

    A client with open connections, or a lock, that a function keeps from call to call belongs to
    the loop in which it was first used.
    """
    loop = asyncio.new_event_loop()

    def run() -> None:
        while True:
            with suppress(SystemExit, KeyboardInterrupt):  # of a function
                loop.run_forever()

    Thread(target=run, name="async functions", daemon=True).start()
    return loop


def function_scores(returned: object, count: int, name: str) -> dict[str, Tensor]:
    """The result of a function as scores `[count]` by name: scores, a pair of them and info, which
    is ignored, or a mapping of several. Of several, that of the function's name trains.
    RewardError where it is none of these.
    """
    if isinstance(returned, tuple) and len(returned) == 2 and _is_info(*returned):
        returned = returned[0]
    if not isinstance(returned, Mapping):
        return {name: as_scores(returned, count, f"reward {name}")}
    scores = {str(k): as_scores(v, count, f"reward {name}: {k}") for k, v in returned.items()}
    if len(scores) == 1:
        return {name: next(iter(scores.values()))}
    if name not in scores:
        raise RewardError(
            f"reward {name} returned the scores {', '.join(scores) or 'none'}; one of them must be"
            f" named {name}, as the function, and trains"
        )
    return scores


def _is_info(scores: object, info: object) -> bool:
    """Whether a returned pair is scores and info, as in ddpo-pytorch, rather than two scores."""
    return not isinstance(scores, Number | None) and isinstance(info, Mapping | str | None)
