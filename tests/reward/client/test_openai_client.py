"""Asking a model about pictures: what leaves, what is read of its answer, and failures."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from rlfactory.reward.base import RewardError, Samples
from rlfactory.reward.client.openai_client import AskingReward

from ..elsewhere import Elsewhere, asked, says, servers

MODELS = {"data": [{"id": "llava"}]}


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Elsewhere]]:
    with servers() as start:
        yield lambda answer, health=MODELS: start(answer, health)


class Chat(AskingReward):
    """Asks, and scores nothing."""

    main = ""

    def score(self, samples: Samples) -> dict[str, torch.Tensor]:
        raise NotImplementedError


def chat(url: str, **options: Any) -> Chat:
    return Chat(url=url, **({"model": "llava", "retries": 0, "concurrency": 2} | options))


def pictures(count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, 4, 6)


def test_answers_are_in_the_order_of_the_questions(elsewhere):
    def echo(body):
        question, picture = asked(body)
        return f"{question} {picture.size} {picture.getpixel((0, 0))[0]}"

    server = elsewhere(says(echo))
    found = chat(server.url, image_size=5).answers(
        [[picture] for picture in pictures(3)], ["x", "y", "x"], 9
    )
    assert found == ["x (5, 5) 0", "y (5, 5) 1", "x (5, 5) 2"]
    body = server.asked[0][1]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("llava", 0, 9)


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"<html>"),
        (200, {}),
        (200, {"choices": []}),
        (200, {"choices": [{"message": {"content": None}}]}),
        (400, {"error": {"message": "too long"}}),
        (500, b""),
    ],
    ids=str,
)
def test_a_failure_is_one_samples_own(elsewhere, answer, caplog):
    good = says(lambda body: "yes")

    def one_fails(body):
        return answer if "bad" in asked(body)[0] else good(body)

    found = chat(elsewhere(one_fails).url).answers(
        [[picture] for picture in pictures(3)], ["fine", "bad", "good"], 9
    )
    assert found == ["yes", None, "yes"]
    assert "1 samples got no answer" in caplog.text
    assert answer[0] != 400 or "too long" in caplog.text


@pytest.mark.parametrize("models", [{}, {"data": "many"}, {"data": []}], ids=str)
def test_a_server_that_does_not_say_which_models_it_has(elsewhere, models):
    chat(elsewhere(says(lambda body: ""), models).url)


def test_a_model_that_the_server_does_not_have(elsewhere):
    url = elsewhere(says(lambda body: "")).url
    with pytest.raises(RewardError, match=f"reward.model=other is not at {url}, which has llava"):
        chat(url, model="other")


def test_a_server_that_is_down():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(RewardError, match="no model answers there: ConnectError"):
        chat(f"http://127.0.0.1:{port}/v1")
