"""What a server may be told beside the reward that it serves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rlfactory.problems import PlanError, Problem, key_of
from rlfactory.typecheck import describe, fits
from rlfactory.types import NonNegative, NonNegativeInt, Positive, PositiveInt

MIB = 2**20
BYTES_A_PIXEL = 3


@dataclass(frozen=True)
class ServeSettings:
    """Where the server listens and what it takes; the defaults are for one trainer nearby.

    `max_batch` samples are scored together if they come within `wait_ms`. A request has at most
    `max_body_mb` MiB, `max_samples` samples and `max_megapixels` million pixels in all, and must
    have arrived within `timeout` seconds. `queue` requests wait, `memory_mb` MiB hold them all, and
    `kept` answers are given again to whoever asks again.
    """

    host: str = "127.0.0.1"
    port: NonNegativeInt = 8000
    token_env: str = "RLFACTORY_SERVE_TOKEN"
    max_batch: PositiveInt = 64
    wait_ms: NonNegative = 5.0
    queue: PositiveInt = 256
    max_body_mb: Positive = 64.0
    max_samples: PositiveInt = 1024
    max_megapixels: Positive = 64.0
    memory_mb: Positive = 2048.0
    timeout: Positive = 60.0
    kept: NonNegativeInt = 1024

    @property
    def max_body(self) -> int:
        """In bytes."""
        return int(self.max_body_mb * MIB)

    @property
    def max_pixels(self) -> int:
        """Of all pictures of a request."""
        return int(self.max_megapixels * 1e6)

    @property
    def memory(self) -> int:
        """In bytes."""
        return int(self.memory_mb * MIB)


ALLOWED = ("reward", "hardware", "trust", "hydra")


def read_settings(words: Sequence[str]) -> tuple[ServeSettings, list[str]]:
    """The server's own among `words`, and the overrides; PlanError if some are wrong."""
    own = {f.name: f.type for f in fields(ServeSettings)}
    mine = [word for word in words if key_of(word) in own and "=" in word]
    values, problems = _values(mine, own)
    others = [word for word in words if word not in mine]
    problems += _strangers(others, own)
    if not problems:
        problems += _too_tight(ServeSettings(**values))
    if problems:
        raise PlanError(problems)
    return ServeSettings(**values), others


def _values(words: Sequence[str], kinds: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    from rlfactory._hydra import CompositionError, parse

    values: dict[str, Any] = {}
    problems = []
    for word in words:
        key = key_of(word)
        try:
            value = parse([word])[0].value()
        except CompositionError:
            value = None
        if isinstance(value, int | float) and kinds[key] is str:
            value = word.partition("=")[2]
        if not fits(value, kinds[key]):
            problems.append(Problem(key, f"is {value!r}; allowed is {describe(kinds[key])}"))
        values[key] = value
    return values, problems


def _strangers(words: Sequence[str], own: Mapping[str, Any]) -> Iterator[Problem]:
    for word in words:
        if "=" not in word or key_of(word).split(".")[0] not in ALLOWED:
            known = ", ".join([*own, *ALLOWED[:-1]])
            yield Problem(key_of(word), f"is not a server's to know; known are {known}")
    if not any(key_of(word).split(".")[0] == "reward" for word in words):
        yield Problem("reward", "none named", "rlfactory serve reward=shapes")


def _too_tight(settings: ServeSettings) -> Iterator[Problem]:
    if settings.port > 65535:
        yield Problem(
            "port", f"is {settings.port}; allowed is 0 to 65535, where 0 finds a free one"
        )
    least = settings.max_body + BYTES_A_PIXEL * settings.max_pixels
    if settings.memory < least:
        message = f"is {settings.memory_mb:g}, and one request may take {least / MIB:.0f}"
        yield Problem("memory_mb", message, f"memory_mb={-(-least // MIB)}")
