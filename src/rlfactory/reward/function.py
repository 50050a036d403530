"""Any Python function as a reward: `(prompts, completions, **columns) -> list[float | None]`."""

import importlib
import importlib.util
import inspect
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError, Samples, completions
from rlfactory.types import Positive

log = logging.getLogger(__name__)


class Function(Reward):
    """The score bears the function's name. None and NaN mean that there is no score.

    `columns` are the prompts' metadata, a list each, as far as the function takes them. Where it
    raises, or takes longer than `timeout` seconds, no sample is scored, and the log says why.
    """

    media = "texts"

    def __init__(self, *, function: str, timeout: Positive = 60.0) -> None:
        self.function = _load(function)
        self.timeout = timeout
        self.main = self.function.__name__

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`; RewardError where there are not as many, or no numbers."""
        texts = list(completions(samples))
        prompts = list(samples.prompts)
        answer = self._call(prompts, texts, **self._columns(samples))
        if not answer:
            return {self.main: torch.full((len(texts),), math.nan)}
        found = answer[0]
        if not isinstance(found, list | tuple) or len(found) != len(texts):
            shown = f"{len(found)} scores" if isinstance(found, list | tuple) else repr(found)[:40]
            raise RewardError(f"{self.main} returned {shown} for {len(texts)} completions")
        return {self.main: torch.tensor([self._number(value) for value in found])}

    def _columns(self, samples: Samples) -> dict[str, list[Any]]:
        parameters = inspect.signature(self.function).parameters.values()
        names = {p.name for p in parameters} - {"prompts", "completions"}
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            names |= {key for row in samples.metadata for key in row}
        every: list[Mapping[str, Any]] = list(samples.metadata)
        return {
            name: [row[name] for row in every] for name in names if all(name in r for r in every)
        }

    def _call(self, *args: object, **columns: object) -> list[Any]:
        """What the function returns, in a list; an empty one, and a word in the log, where it
        failed or hangs.
        """
        result: list[Any] = []

        def work() -> None:
            try:
                result.append(self.function(*args, **columns))
            except Exception:  # whatever a user's function raises is logged, and the samples fail
                log.exception("the reward function %s failed", self.main)

        # a daemon, so that a function that hangs does not keep the run from ending
        thread = Thread(target=work, daemon=True)
        thread.start()
        thread.join(self.timeout)
        if thread.is_alive():
            log.error("the reward function %s took more than %g s", self.main, self.timeout)
        return list(result)

    def _number(self, value: object) -> float:
        if value is None:
            return math.nan
        try:
            return float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise RewardError(f"{self.main} returned {value!r}, which is no number") from error


def _load(path: str) -> Callable[..., Any]:
    place, _, name = path.rpartition(":")
    try:
        module = (
            _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        )
        found: Callable[..., Any] = getattr(module, name)
    except (ImportError, AttributeError, OSError, ValueError) as error:
        allowed = "allowed are package.module:name and path/to/file.py:name"
        raise RewardError(f"reward.function={path} can't be found ({error}); {allowed}") from error
    if not callable(found):
        raise RewardError(f"reward.function={path} is no function but {found!r}")
    return found


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path.expanduser())
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
