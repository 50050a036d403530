"""A reward that is computed elsewhere: by `rlfactory serve`, or whatever speaks as it does."""

import logging
from collections.abc import Iterable, Sequence
from threading import Event
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, RewardError, Samples, completions, pictures
from rlfactory.reward.http import CallFailed, Patience, Server, in_threads
from rlfactory.reward.wire import PROTOCOL, Encoding, decode_scores, encode_samples, to_json
from rlfactory.types import NonNegativeInt, Positive, PositiveInt

log = logging.getLogger(__name__)

TOKEN = "RLFACTORY_SERVE_TOKEN"


class Remote(Reward):
    """The scores of the server at `url`, by the names that they have there.

    Samples go out in batches of whole groups, `concurrency` of them at once. Those that got no
    answer after all `retries` are NaN. The server is asked for its health first: RewardError
    where there is none, or where it judges something else. Times are in seconds.
    """

    media: ClassVar[Literal["images", "texts"]] = "images"
    metadata: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        *,
        url: str,
        token_env: str = TOKEN,
        encoding: Encoding = "png",
        batch_size: PositiveInt = 32,
        concurrency: PositiveInt = 4,
        connect_timeout: Positive = 5.0,
        timeout: Positive = 120.0,
        retries: NonNegativeInt = 5,
        backoff: Positive = 0.5,
    ) -> None:
        self.encoding: Encoding = encoding
        patience = Patience(connect_timeout, timeout, retries, backoff)
        self.server = Server(
            url, key="reward.url", token_env=token_env, patience=patience, concurrency=concurrency
        )
        health = _health(self.server, token_env)
        _require_media(self.media, health)
        self.main = health["main"]
        self.names = dict.fromkeys([self.main, *health["scores"]])
        # of every other reward the class knows these
        self.metadata = tuple(health["metadata"])  # type: ignore[misc]
        self.good = health["good"]  # type: ignore[misc]
        self.batch_size = min(batch_size, health["max_samples"])

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` by name, NaN where no answer was had."""
        (pictures if self.media == "images" else completions)(samples)
        self.require(map(Prompt, samples.prompts, samples.metadata))
        batches = whole_groups(samples.groups, self.batch_size)

        def ask(number: int, stop: Event) -> dict[str, Tensor]:
            rows = batches[number]
            body = _written(encode_samples(samples, rows, self.encoding))
            return self.server.post(
                "/score", body, lambda answer: decode_scores(answer, len(rows), self.main), stop
            )

        answers = in_threads(ask, len(batches), self.server.concurrency)
        self.names |= {n: None for a in answers if not isinstance(a, CallFailed) for n in a}
        scores = {name: torch.full((len(samples.prompts),), torch.nan) for name in self.names}
        for rows, answer in zip(batches, answers, strict=True):
            if isinstance(answer, CallFailed):
                log.error("%d samples got no score from %s: %s", len(rows), self.server.url, answer)
                continue
            for name, values in answer.items():
                scores[name][rows] = values
        return scores

    def require(self, prompts: Iterable[Prompt]) -> None:
        """RewardError where prompts lack what the server reads of them."""
        lacking = {key for p in prompts for key in self.metadata if key not in p.metadata}
        if lacking:
            raise RewardError(
                f"the reward at {self.server.url} reads {', '.join(sorted(lacking))} of each"
                " prompt's metadata, and these prompts do not bring it"
            )


class RemoteText(Remote):
    """The same of a server that judges texts."""

    media = "texts"
    metadata = ()

    def __init__(
        self,
        *,
        url: str,
        token_env: str = TOKEN,
        batch_size: PositiveInt = 256,
        concurrency: PositiveInt = 4,
        connect_timeout: Positive = 5.0,
        timeout: Positive = 120.0,
        retries: NonNegativeInt = 5,
        backoff: Positive = 0.5,
    ) -> None:
        super().__init__(
            url=url,
            token_env=token_env,
            batch_size=batch_size,
            concurrency=concurrency,
            connect_timeout=connect_timeout,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
        )


def whole_groups(groups: Tensor, size: int) -> list[list[int]]:
    """The rows in batches of at most `size`, each group in one; a larger group is one batch."""
    members: dict[int, list[int]] = {}
    for row, group in enumerate(groups.tolist()):
        members.setdefault(group, []).append(row)
    batches: list[list[int]] = []
    for rows in members.values():
        if not batches or len(batches[-1]) + len(rows) > size:
            batches.append([])
        batches[-1] += rows
    return batches


def _written(message: dict[str, Any]) -> bytes:
    try:
        return to_json(message)
    except (TypeError, ValueError) as error:
        raise RewardError(f"the prompts' metadata can't be sent as JSON: {error}") from error


def _health(server: Server, token_env: str) -> dict[str, Any]:
    """What the server says of itself; RewardError where it says nothing, or nothing of the kind."""
    try:
        found = server.get("/health")
    except (CallFailed, ValueError) as error:
        locked = getattr(error, "status", None) == 401
        hint = f"; is {token_env} set to its token?" if locked else ""
        start = "" if hint else "; start one with: rlfactory serve reward=NAME"
        raise RewardError(
            f"reward.url={server.url}: no reward answers there: {error}{hint}{start}"
        ) from error
    kinds = {"media": str, "main": str, "scores": list, "metadata": list}
    wrong = [key for key, kind in kinds.items() if not isinstance(found.get(key), kind)]
    if wrong or not _texts(found["scores"]) or not _texts(found["metadata"]):
        raise RewardError(f"reward.url={server.url} is no server of rewards: see docs/serve.md")
    if found.get("protocol") != PROTOCOL:
        raise RewardError(
            f"reward.url={server.url} speaks protocol {found.get('protocol')!r}, and this is"
            f" {PROTOCOL}: install the same rlfactory on both sides"
        )
    good, most = found.get("good"), found.get("max_samples")
    good = float(good) if isinstance(good, int | float) else None
    return found | {"good": good, "max_samples": most if type(most) is int and most > 0 else 2**31}


def _texts(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _require_media(media: str, health: dict[str, Any]) -> None:
    if health["media"] != media:
        option = "remote_text" if media == "images" else "remote"
        raise RewardError(
            f"the server's reward {health['main']} judges {health['media']}, and this run makes"
            f" {media}; for its {health['media']} there is reward={option}"
        )
