"""The server's own settings: address, token, limits."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

from rlfactory.config.problems import PlanError, Problem, override_key
from rlfactory.config.schema_problems import typed_problems
from rlfactory.utils.types import NonNegativeInt, Positive, PositiveInt

LARGEST_PORT = 65535
ALLOWED = ("reward", "hardware", "trust", "hydra")
"""What of a configuration a server reads."""


@dataclass(frozen=True)
class ServeSettings:
    """Settings of the server; the defaults suit one training run on the same machine.

    Attributes:
        host: the address to listen on.
        port: 0 chooses a free one.
        token_env: the environment variable that holds the token.
        max_body_mb: MiB of one request.
        max_samples: samples of one request.
        max_megapixels: million pixels of one request's images.
        timeout: seconds in which a request must have arrived.
        kept: answers kept for repeated requests.
        connections: that are open at once; further requests get 503.
    """

    host: str = "127.0.0.1"
    port: NonNegativeInt = 8000
    token_env: str = "RLFACTORY_SERVE_TOKEN"
    max_body_mb: Positive = 64.0
    max_samples: PositiveInt = 1024
    max_megapixels: Positive = 64.0
    timeout: Positive = 60.0
    kept: NonNegativeInt = 1024
    connections: PositiveInt = 64


def read_settings(words: Sequence[str]) -> tuple[ServeSettings, list[str]]:
    """Split `words` into the server's settings and overrides; PlanError if some are wrong."""
    own = {f.name: f.type for f in fields(ServeSettings)}
    settings = [word for word in words if override_key(word) in own and "=" in word]
    values = {key: _value(word, own[key]) for word in settings for key in [override_key(word)]}
    others = [word for word in words if word not in settings]
    problems = [*typed_problems(asdict(ServeSettings()) | values, ServeSettings)]
    known, chosen = ", ".join([*own, *ALLOWED[:-1]]), {w: override_key(w) for w in others}
    for word, key in chosen.items():
        if "=" not in word or key.split(".")[0] not in ALLOWED:
            problems.append(Problem(key, f"is no setting of a server; allowed are {known}"))
    if not any(key.split(".")[0] == "reward" for key in chosen.values()):
        problems.append(Problem("reward", "none named", "rlfactory serve reward=shapes"))
    if not problems and (port := values.get("port", 0)) > LARGEST_PORT:
        message = f"is {port}; allowed is 0 to {LARGEST_PORT}, where 0 finds a free one"
        problems.append(Problem("port", message))
    if problems:
        raise PlanError(problems)
    return ServeSettings(**values), others


def _value(word: str, kind: Any) -> Any:
    """A typed value; a text where it can't be read, or one is wanted."""
    from rlfactory.config._hydra import CompositionError, parse

    with suppress(*CompositionError):
        if kind is not str:
            return parse([word])[0].value()
    return word.partition("=")[2]
