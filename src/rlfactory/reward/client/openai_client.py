"""Questions to a language model on an OpenAI-compatible server, about images or texts."""

import logging
import math
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from rlfactory.reward.base import RewardError
from rlfactory.reward.client.http_client import CallFailed, HttpReward
from rlfactory.reward.client.protocol import png, to_json
from rlfactory.utils.images import resize_to_square
from rlfactory.utils.types import Media, PositiveInt

T = TypeVar("T")

log = logging.getLogger(__name__)

PROMPT_FIELD = "{prompt}"
_NO_MODEL_LIST = (404, 405, 501)


class AskingReward(HttpReward):
    """A reward in [0, 1] that a language model's answers give.

    RewardError where the server or the model is not there.

    Args:
        max_tokens: Of an answer.
    """

    media: ClassVar[Media] = "images"
    best_score = 1.0

    def __init__(
        self,
        *,
        model: str,
        key_env: str = "OPENAI_API_KEY",
        image_size: PositiveInt | None = None,
        concurrency: PositiveInt = 16,
        **options: Any,
    ) -> None:
        """
        Args:
            url: A server with OpenAI's protocol: http://HOST:PORT/v1.
            model: The model's name on the server.
            key_env: The environment variable with the server's key, if it wants one.
            image_size: Side of the square that images are resized to, in pixels; null: as they are.
            concurrency: Simultaneous requests, one image each.
        """
        super().__init__(concurrency=concurrency, **options)
        self.model, self.image_size = model, image_size
        self.authorize(key_env)
        self._require_model(key_env)

    def answers(
        self, images: Sequence[Sequence[Tensor]], questions: Sequence[str], max_tokens: int
    ) -> list[str | None]:
        """The answer to each of `B` questions, cut after `max_tokens`, about the images that are
        shown with it, `[3, h, w]` uint8 each, or none; None where all attempts failed.
        """
        return self._asked(images, questions, {"max_tokens": max_tokens}, _message)

    def first_tokens(
        self, images: Sequence[Tensor], questions: Sequence[str], top: int
    ) -> list[dict[str, float] | None]:
        """The probabilities of the `top` most likely tokens with which each answer begins, by their
        texts; None where all attempts failed, as for a server that tells no log-probabilities.
        """
        more = {"max_tokens": 1, "logprobs": True, "top_logprobs": top}
        return self._asked([[image] for image in images], questions, more, _first_tokens)

    def _asked(
        self,
        images: Sequence[Sequence[Tensor]],
        questions: Sequence[str],
        more: Mapping[str, object],
        read: Callable[[dict[str, Any]], T],
    ) -> list[T | None]:
        """The value that is read of each answer to a question about some images."""
        results = self.post_each(
            "/chat/completions",
            len(questions),
            lambda i: to_json({**self._request(images[i], questions[i]), **more}),
            lambda _, response: read(response),
        )
        failed = [result for result in results if isinstance(result, CallFailed)]
        if failed:
            log.error("%d samples got no answer from %s: %s", len(failed), self.url, failed[0])
        return [None if isinstance(result, CallFailed) else result for result in results]

    def _request(self, images: Sequence[Tensor], question: str) -> dict[str, Any]:
        files = [b64encode(png(resize_to_square(image, self.image_size))) for image in images]
        addresses = [f"data:image/png;base64,{file.decode()}" for file in files]
        parts: list[dict[str, Any]] = [
            *({"type": "image_url", "image_url": {"url": address}} for address in addresses),
            {"type": "text", "text": question},
        ]
        # a chat template of texts alone may take no parts
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": parts if images else question}],
            "temperature": 0,
        }

    def _require_model(self, key_env: str) -> None:
        """RewardError unless the server answers and, if it lists its models, has this one."""
        try:
            listed = self.get("/models").get("data")
        except (CallFailed, ValueError) as error:
            status = getattr(error, "status", None)
            if status in _NO_MODEL_LIST:
                return  # a server without that endpoint
            hint = f"; is {key_env} set to its key?" if status in (401, 403) else ""
            raise RewardError(
                f"reward.url={self.url}: no model answers there: {error}{hint}"
            ) from error
        models = listed if isinstance(listed, list) else []
        names = [str(m.get("id")) for m in models if isinstance(m, dict)]
        if names and self.model not in names:
            raise RewardError(
                f"reward.model={self.model} is not at {self.url}, which has {', '.join(names[:8])}"
            )


def _message(response: dict[str, Any]) -> str:
    try:
        content = response["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError("the answer holds no message") from error
    if not isinstance(content, str):
        raise ValueError("the answer holds no text")
    return content


def _first_tokens(response: dict[str, Any]) -> dict[str, float]:
    try:
        listed = response["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        return {str(entry["token"]): math.exp(entry["logprob"]) for entry in listed}
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError("the answer holds no log-probabilities") from error
