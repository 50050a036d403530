"""Questions about images to a vision-language model on an OpenAI-compatible server."""

import logging
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event
from typing import Any, ClassVar, TypeVar

from PIL import Image
from torch import Tensor

from rlfactory.reward.base import Reward, RewardError
from rlfactory.reward.client.http_client import CallFailed, JsonClient, RetryPolicy, in_threads
from rlfactory.reward.client.protocol import png, to_json
from rlfactory.utils.images import from_pil, to_pil
from rlfactory.utils.types import Media, NonNegativeInt, Positive, PositiveInt

T = TypeVar("T")

log = logging.getLogger(__name__)

PROMPT_FIELD = "{prompt}"
_NO_MODEL_LIST = (404, 405, 501)


class VisionChat:
    """Chat completions of a vision-language model, one question per request.

    Args:
        url: The server's address, which ends in /v1.
        model: The model's name on the server.
        key_env: The environment variable with the API key.
        image_size: The side of the square that images are resized to; None: as they are.
        concurrency: Simultaneous requests.
        policy: Timeouts and retries.

    Raises:
        RewardError: No server answers, or it has another model.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        key_env: str,
        image_size: int | None,
        concurrency: int,
        policy: RetryPolicy,
    ) -> None:
        self.model = model
        self.image_size = image_size
        self.server = JsonClient(
            url, key="reward.url", token_env=key_env, policy=policy, concurrency=concurrency
        )
        _require_model(self.server, model, key_env)

    def answers(
        self, images: Sequence[Sequence[Tensor]], questions: Sequence[str], max_tokens: int
    ) -> list[str | None]:
        """The answer to each question about its images; None where all attempts failed.

        Args:
            images: what is shown with each of `B` questions, `[3, h, w]` uint8 each.
            questions: `B` of them.
            max_tokens: of an answer, which is cut there.
        """
        return self._asked(images, questions, {"max_tokens": max_tokens}, _message)

    def first_tokens(
        self, images: Sequence[Tensor], questions: Sequence[str], top: int
    ) -> list[dict[str, float] | None]:
        """The probabilities of the `top` most likely tokens with which each answer begins, by their
        texts; None where all attempts failed, as for a server that tells no log-probabilities.
        """
        more = {"max_tokens": 1, "logprobs": True, "top_logprobs": top}
        return self._asked(alone(images), questions, more, _first_tokens)

    def _asked(
        self,
        images: Sequence[Sequence[Tensor]],
        questions: Sequence[str],
        more: Mapping[str, object],
        read: Callable[[dict[str, Any]], T],
    ) -> list[T | None]:
        """What is read of each answer to a question about some images."""

        def ask(number: int, stop: Event) -> T:
            body = to_json({**self._request(images[number], questions[number]), **more})
            return self.server.post("/chat/completions", body, read, stop)

        results = in_threads(ask, len(questions), self.server.concurrency)
        failed = [result for result in results if isinstance(result, CallFailed)]
        if failed:
            log.error(
                "%d samples got no answer from %s: %s", len(failed), self.server.url, failed[0]
            )
        return [None if isinstance(result, CallFailed) else result for result in results]

    def _request(self, images: Sequence[Tensor], question: str) -> dict[str, Any]:
        files = [b64encode(png(resize_to_square(image, self.image_size))) for image in images]
        addresses = [f"data:image/png;base64,{file.decode()}" for file in files]
        parts: list[dict[str, Any]] = [
            *({"type": "image_url", "image_url": {"url": address}} for address in addresses),
            {"type": "text", "text": question},
        ]
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": parts}],
            "temperature": 0,
        }


class AskingReward(Reward):
    """A reward that asks a vision-language model on a server: the options that all of them have.

    Args:
        max_tokens: Of an answer.

    RewardError where the server or the model is not there.
    """

    media: ClassVar[Media] = "images"
    best_score = 1.0

    def __init__(
        self,
        *,
        url: str,
        model: str,
        key_env: str = "OPENAI_API_KEY",
        image_size: PositiveInt | None = None,
        concurrency: PositiveInt = 16,
        connect_timeout: Positive = 5,
        timeout: Positive = 120,
        retries: NonNegativeInt = 5,
        backoff: Positive = 0.5,
    ) -> None:
        """
        Args:
            url: A server with OpenAI's protocol: http://HOST:PORT/v1.
            model: The model's name on the server.
            key_env: The environment variable with the server's key, if it wants one.
            image_size: Side of the square that images are resized to, in pixels; null: as they are.
            concurrency: Simultaneous requests, one image each.
            connect_timeout: > 0: seconds to connect.
            timeout: > 0: seconds for one answer.
            retries: Attempts after the first; then the sample counts as failed.
            backoff: > 0: seconds before the second attempt, doubled before each further one.
        """
        self.chat = VisionChat(
            url,
            model=model,
            key_env=key_env,
            image_size=image_size,
            concurrency=concurrency,
            policy=RetryPolicy(connect_timeout, timeout, retries, backoff),
        )


def alone(images: Iterable[Tensor]) -> list[list[Tensor]]:
    """Each image by itself, as what is shown with a question."""
    return [[image] for image in images]


def resize_to_square(image: Tensor, side: int | None) -> Tensor:
    """An image `[3, H, W]` uint8 as a square, by Pillow's bicubic filter; as it is for None."""
    if side is None or image.shape[1:] == (side, side):
        return image
    return from_pil(to_pil(image).resize((side, side), Image.Resampling.BICUBIC))


def fill_template(template: str, prompt: str) -> str:
    """A template with `{prompt}` replaced by the prompt; other braces stay as they are."""
    return template.replace(PROMPT_FIELD, prompt)


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


def _require_model(server: JsonClient, model: str, key_env: str) -> None:
    """RewardError unless the server answers and, if it lists its models, has this one."""
    try:
        listed = server.get("/models").get("data")
    except (CallFailed, ValueError) as error:
        status = getattr(error, "status", None)
        if status in _NO_MODEL_LIST:
            return  # a server without that endpoint
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
