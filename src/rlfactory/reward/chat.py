"""Asking a vision-language model about pictures, at any server that speaks OpenAI's protocol."""

import logging
from base64 import b64encode
from collections.abc import Sequence
from threading import Event
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from rlfactory.pillow import to_pil
from rlfactory.reward.base import RewardError
from rlfactory.reward.http import CallFailed, Patience, Server, in_threads
from rlfactory.reward.wire import png, to_json

log = logging.getLogger(__name__)

KEY = "OPENAI_API_KEY"
PLACE = "{prompt}"
_ABSENT = (404, 405, 501)


class Chat:
    """The model `model` of the server at `url` (which ends in /v1), one picture a request.

    `image_size` is the side that pictures are made square with; null leaves them as they are.
    RewardError where nothing answers, or where the server has another model.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        key_env: str,
        image_size: int | None,
        max_tokens: int,
        concurrency: int,
        patience: Patience,
    ) -> None:
        self.model = model
        self.image_size = image_size
        self.max_tokens = max_tokens
        self.server = Server(
            url, key="reward.url", token_env=key_env, patience=patience, concurrency=concurrency
        )
        _require_model(self.server, model, key_env)

    def answers(self, images: Tensor, questions: Sequence[str]) -> list[str | None]:
        """What is said of each of `images` `[B, 3, H, W]`; None, with the reason in the log, where
        no answer was had.
        """

        def ask(number: int, stop: Event) -> str:
            body = to_json(self._request(images[number], questions[number]))
            return self.server.post("/chat/completions", body, _said, stop)

        found = in_threads(ask, len(questions), self.server.concurrency)
        failed = [answer for answer in found if isinstance(answer, CallFailed)]
        if failed:
            log.error(
                "%d samples got no answer from %s: %s", len(failed), self.server.url, failed[0]
            )
        return [None if isinstance(answer, CallFailed) else answer for answer in found]

    def _request(self, image: Tensor, question: str) -> dict[str, Any]:
        address = (
            "data:image/png;base64," + b64encode(png(resized(image, self.image_size))).decode()
        )
        parts = [
            {"type": "image_url", "image_url": {"url": address}},
            {"type": "text", "text": question},
        ]
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": parts}],
            "temperature": 0,
            "max_tokens": self.max_tokens,
        }


def resized(image: Tensor, side: int | None) -> Tensor:
    """A picture `[3, H, W]` uint8 as a square, by Pillow's bicubic filter."""
    if side is None or image.shape[1:] == (side, side):
        return image
    picture = to_pil(image)
    pixels = torch.frombuffer(
        bytearray(picture.resize((side, side), Image.Resampling.BICUBIC).tobytes()),
        dtype=torch.uint8,
    )
    return pixels.view(side, side, 3).permute(2, 0, 1)


def filled(template: str, prompt: str) -> str:
    """A template with the prompt in its place; other braces stay as they are."""
    return template.replace(PLACE, prompt)


def _said(answer: dict[str, Any]) -> str:
    try:
        said = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError("the answer holds no message") from error
    if not isinstance(said, str):
        raise ValueError("the answer holds no text")
    return said


def _require_model(server: Server, model: str, key_env: str) -> None:
    """RewardError unless the server is there and, as far as it says, has the model."""
    try:
        listed = server.get("/models").get("data")
    except (CallFailed, ValueError) as error:
        status = getattr(error, "status", None)
        if status in _ABSENT:
            return  # it keeps no list
        hint = f"; is {key_env} set to its key?" if status in (401, 403) else ""
        raise RewardError(
            f"reward.url={server.url}: no model answers there: {error}{hint}"
        ) from error
    names = (
        [str(m.get("id")) for m in listed if isinstance(m, dict)]
        if isinstance(listed, list)
        else []
    )
    if names and model not in names:
        raise RewardError(
            f"reward.model={model} is not at {server.url}, which has {', '.join(names[:8])}"
        )
