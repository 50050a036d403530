"""Remote rewards: the scores of a server with the protocol of `rlfactory serve`."""

import logging
from collections.abc import Iterable
from typing import Any, TypedDict

from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import (
    Direction,
    RewardError,
    Samples,
    require_images,
    require_texts,
)
from rlfactory.reward.client.http_client import CallFailed, HttpReward
from rlfactory.reward.client.protocol import (
    PROTOCOL,
    Encoding,
    decode_scores,
    encode_samples,
    to_json,
)
from rlfactory.utils.data_files import mismatch
from rlfactory.utils.pytree import merge_rows
from rlfactory.utils.types import PositiveInt

log = logging.getLogger(__name__)


class _Health(TypedDict):
    """The description that every server gives of its reward."""

    media: str
    main: str
    scores: list[str]
    metadata: list[str]
    better: dict[str, Direction]


class ServedReward(HttpReward):
    """The scores on the server at `url`, by their names there.

    Samples are sent in batches of complete groups, `concurrency` requests at once. Samples without
    a response after all `retries` are NaN. RewardError where no server answers at the start.
    """

    encoding: Encoding = "png"

    def __init__(
        self,
        *,
        token_env: str = "RLFACTORY_SERVE_TOKEN",
        batch_size: PositiveInt = 32,
        **options: Any,
    ) -> None:
        """
        Args:
            token_env: The environment variable with the server's token, if it has one.
            batch_size: Images in a request; a group is never split.
        """
        super().__init__(**options)
        self.authorize(token_env)
        health = self._health(token_env)
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
        answers = self.post_each(
            "/score",
            len(batches),
            lambda i: _encode(encode_samples(samples, batches[i], self.encoding)),
            lambda i, answer: decode_scores(answer, len(batches[i]), self.main),
        )
        self.names |= {n: None for a in answers if not isinstance(a, CallFailed) for n in a}
        parts = []
        for rows, answer in zip(batches, answers, strict=True):
            if isinstance(answer, CallFailed):
                log.error("%d samples got no score from %s: %s", len(rows), self.url, answer)
            else:
                parts.append((rows, answer))
        return merge_rows(parts, len(samples.prompts), self.names)

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """RewardError where a prompt lacks metadata that the server requires."""
        lacking = {key for p in prompts for key in self.metadata if key not in p.metadata}
        if lacking:
            raise RewardError(
                f"the reward at {self.url} reads {', '.join(sorted(lacking))} of each"
                " prompt's metadata, and these prompts lack it"
            )

    def _health(self, token_env: str) -> dict[str, Any]:
        """The server's description of its reward; RewardError where it has none of this media."""
        place = f"reward.url={self.url}"
        try:
            health = self.get("/health")
        except (CallFailed, ValueError) as error:
            unauthorized = getattr(error, "status", None) == 401
            token_hint = f"; is {token_env} set to its token?"
            start_hint = "; start one with: rlfactory serve reward=NAME"
            hint = token_hint if unauthorized else start_hint
            raise RewardError(f"{place}: no reward answers there: {error}{hint}") from error
        # a server of an earlier version says nothing of its further scores
        health = {"better": {}, **health}
        known = {key: health[key] for key in _Health.__annotations__ if key in health}
        if fault := mismatch(known, _Health):
            raise RewardError(f"{place} is no reward server: in /health {fault}; see docs/serve.md")
        if health.get("protocol") != PROTOCOL:
            raise RewardError(
                f"{place} speaks protocol {health.get('protocol')!r}, and this is {PROTOCOL}:"
                " install the same rlfactory on both sides"
            )
        if health["media"] != self.media:
            option = "remote_text" if self.media == "images" else "remote"
            raise RewardError(
                f"the server's reward {health['main']} scores {health['media']}, and this run makes"
                f" {self.media}; to score {health['media']} type reward={option}"
            )
        good, limit = health.get("good"), health.get("max_samples")
        good = float(good) if isinstance(good, int | float) else None
        limit = limit if type(limit) is int and limit > 0 else 2**31
        return health | {"good": good, "max_samples": limit}


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
