"""Remote rewards: the scores of a server with the protocol of `rlfactory serve`."""

import logging
from collections.abc import Iterable, Sequence
from threading import Event
from typing import Any, get_args

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import (
    Direction,
    Reward,
    RewardError,
    Samples,
    require_images,
    require_texts,
)
from rlfactory.reward.client.http_client import CallFailed, JsonClient, RetryPolicy, in_threads
from rlfactory.reward.client.protocol import (
    PROTOCOL,
    Encoding,
    decode_scores,
    encode_samples,
    to_json,
)
from rlfactory.utils.types import NonNegativeInt, Positive, PositiveInt

log = logging.getLogger(__name__)


class ServedReward(Reward):
    """The scores on the server at `url`, by their names there.

    Samples are sent in batches of complete groups, `concurrency` requests at once. Samples without
    a response after all `retries` are NaN. RewardError where no server answers at the start.
    """

    encoding: Encoding = "png"

    def __init__(
        self,
        *,
        url: str,
        token_env: str = "RLFACTORY_SERVE_TOKEN",
        batch_size: PositiveInt = 32,
        concurrency: PositiveInt = 4,
        connect_timeout: Positive = 5,
        timeout: Positive = 120,
        retries: NonNegativeInt = 5,
        backoff: Positive = 0.5,
    ) -> None:
        """
        Args:
            url: http://HOST:PORT.
            token_env: The environment variable with the server's token, if it has one.
            batch_size: Images in a request; a group is never split.
            concurrency: Simultaneous requests.
            connect_timeout: > 0: seconds to connect.
            timeout: > 0: seconds to answer a request.
            retries: Attempts after the first; then the request's samples count as failed.
            backoff: > 0: seconds before the second attempt, doubled before each further one.
        """
        policy = RetryPolicy(connect_timeout, timeout, retries, backoff)
        self.server = JsonClient(
            url, key="reward.url", token_env=token_env, policy=policy, concurrency=concurrency
        )
        health = _health(self.server, token_env)
        _require_media(self.media, health)
        self.main = health["main"]
        self.names = dict.fromkeys([self.main, *health["scores"]])
        # other rewards have these as class attributes; here the server states them
        self.metadata = tuple(health["metadata"])  # type: ignore[misc]
        self.best_score = health["good"]  # type: ignore[misc]
        self.better = health["better"]  # type: ignore[misc]
        self.batch_size = min(batch_size, health["max_samples"])

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` by name, NaN for samples without a response."""
        (require_images if self.media == "images" else require_texts)(samples)
        self.check_prompts(map(Prompt, samples.prompts, samples.metadata))
        batches = group_batches(samples.groups, self.batch_size)

        def ask(number: int, stop: Event) -> dict[str, Tensor]:
            rows = batches[number]
            body = _encode(encode_samples(samples, rows, self.encoding))
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

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """RewardError where a prompt lacks metadata that the server requires."""
        lacking = {key for p in prompts for key in self.metadata if key not in p.metadata}
        if lacking:
            raise RewardError(
                f"the reward at {self.server.url} reads {', '.join(sorted(lacking))} of each"
                " prompt's metadata, and these prompts lack it"
            )


class Remote(ServedReward):
    """The scores of images on the server at `url`; RewardError where it scores texts."""

    media = "images"

    def __init__(self, *, encoding: Encoding = "png", **options: Any) -> None:
        """
        Args:
            encoding: png | raw: raw takes less time and more bytes.
        """
        super().__init__(**options)
        self.encoding = encoding


class RemoteText(ServedReward):
    """The scores of texts on the server at `url`; RewardError where it scores images."""

    media = "texts"

    def __init__(self, *, batch_size: PositiveInt = 256, **options: Any) -> None:
        """
        Args:
            batch_size: Texts in a request; a group is never split.
        """
        super().__init__(batch_size=batch_size, **options)


def group_batches(groups: Tensor, size: int) -> list[list[int]]:
    """Row numbers in batches of complete groups, at most `size` rows unless one group has more."""
    members: dict[int, list[int]] = {}
    for row, group in enumerate(groups.tolist()):
        members.setdefault(group, []).append(row)
    batches: list[list[int]] = []
    for rows in members.values():
        if not batches or len(batches[-1]) + len(rows) > size:
            batches.append([])
        batches[-1] += rows
    return batches


def _encode(message: dict[str, Any]) -> bytes:
    try:
        return to_json(message)
    except (TypeError, ValueError) as error:
        raise RewardError(f"the prompts' metadata can't be sent as JSON: {error}") from error


def _health(server: JsonClient, token_env: str) -> dict[str, Any]:
    """The server's description of its reward; RewardError where it has none."""
    try:
        health = server.get("/health")
    except (CallFailed, ValueError) as error:
        unauthorized = getattr(error, "status", None) == 401
        token_hint = f"; is {token_env} set to its token?"
        start_hint = "; start one with: rlfactory serve reward=NAME"
        hint = token_hint if unauthorized else start_hint
        raise RewardError(
            f"reward.url={server.url}: no reward answers there: {error}{hint}"
        ) from error
    kinds = {"media": str, "main": str, "scores": list, "metadata": list}
    wrong = [key for key, kind in kinds.items() if not isinstance(health.get(key), kind)]
    if wrong or not _all_strings(health["scores"]) or not _all_strings(health["metadata"]):
        raise RewardError(f"reward.url={server.url} is no reward server: see docs/serve.md")
    if health.get("protocol") != PROTOCOL:
        raise RewardError(
            f"reward.url={server.url} speaks protocol {health.get('protocol')!r}, and this is"
            f" {PROTOCOL}: install the same rlfactory on both sides"
        )
    good, limit = health.get("good"), health.get("max_samples")
    good = float(good) if isinstance(good, int | float) else None
    limit = limit if type(limit) is int and limit > 0 else 2**31
    # a server of an earlier version says nothing of its further scores
    better = health.get("better", {})
    if not isinstance(better, dict) or not {*better.values()} <= {*get_args(Direction)}:
        raise RewardError(f"reward.url={server.url} is no reward server: see docs/serve.md")
    return health | {"good": good, "max_samples": limit, "better": better}


def _all_strings(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _require_media(media: str, health: dict[str, Any]) -> None:
    if health["media"] != media:
        option = "remote_text" if media == "images" else "remote"
        raise RewardError(
            f"the server's reward {health['main']} scores {health['media']}, and this run makes"
            f" {media}; to score {health['media']} type reward={option}"
        )
