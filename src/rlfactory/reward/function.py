"""Any Python function as a reward, in the form that TRL's users know."""

import importlib
import importlib.util
import inspect
import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from numbers import Real
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples, completions
from rlfactory.types import Positive

log = logging.getLogger(__name__)

_LARGEST = torch.finfo(torch.float32).max


class Function(Reward):
    """The score of a function of `prompts`, `completions` and columns of the prompts' metadata.

    It takes lists by keyword, those that it names (or all, by `**columns`), and returns a list of
    numbers; None and NaN are scores that could not be had. The score's name is the function's.
    `timeout` is in seconds. RewardError where the function is not found or returns anything else.
    """

    media = "texts"
    metadata = ()

    def __init__(self, *, function: str, timeout: Positive = 60.0) -> None:
        self.call, self.main = load_function(function)
        self.timeout = timeout
        self._parameters = _parameters(self.call, self.main)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`; all NaN where the function raises, or takes longer than `timeout`."""
        arguments = self._arguments(samples)
        failed = torch.full((len(samples.prompts),), torch.nan)
        future = _in_thread(self.call, arguments)
        try:
            error = future.exception(self.timeout)
        except TimeoutError:
            log.error("reward %s gave no answer within %g s", self.main, self.timeout)
            return {self.main: failed}
        if error is not None:
            log.error("reward %s raised an exception", self.main, exc_info=error)
            return {self.main: failed}
        return {self.main: _scores(future.result(), len(failed), self.main)}

    def _arguments(self, samples: Samples) -> dict[str, list[Any]]:
        """What the function takes of what there is; RewardError if it needs more."""
        there = {
            **_columns(samples.metadata),
            "prompts": list(samples.prompts),
            "completions": list(completions(samples)),
        }
        named = [p for p in self._parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
        missing = [p.name for p in named if p.default is p.empty and p.name not in there]
        if missing:
            raise RewardError(
                f"reward.function: {self.main} takes {', '.join(missing)}, and there are"
                f" {', '.join(sorted(there))}"
            )
        takes_any = len(named) < len(self._parameters)
        names = {p.name for p in named}
        return {name: values for name, values in there.items() if takes_any or name in names}


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


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """What a function takes by keyword; RewardError if that is not known, or is not all."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise RewardError(f"reward.function: what {name} takes can't be read: {error}") from error
    if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        raise RewardError(f"reward.function: {name} must take prompts and completions by name")
    return [p for p in parameters if p.kind is not p.VAR_POSITIONAL]


def _columns(metadata: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Metadata by key, None where a prompt has none of that name."""
    keys = dict.fromkeys(key for row in metadata for key in row)
    return {key: [row.get(key) for row in metadata] for key in keys}


def _in_thread(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Future[Any]:
    """Call in a daemon thread, which a process that ends does not wait for."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(function(**arguments))
        except BaseException as error:  # sys.exit() in a function must not end the run unseen
            future.set_exception(error)

    Thread(target=work, daemon=True).start()
    return future


def _scores(values: object, count: int, name: str) -> Tensor:
    """What the function returned, `[count]` float32; RewardError unless it is such a list."""
    if not isinstance(values, list | tuple):
        raise RewardError(f"reward {name} must return a list, not {type(values).__name__}")
    if len(values) != count:
        raise RewardError(f"reward {name} returned {len(values)} scores for {count} completions")
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
