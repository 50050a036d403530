"""Asking a model about pictures: what leaves, what is read of its answer, and failures."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from PIL import Image

from rlfactory.reward.base import RewardError
from rlfactory.reward.client.http_client import RetryPolicy
from rlfactory.reward.client.openai_client import VisionChat, fill_template, resize_to_square

from ..elsewhere import Elsewhere, asked, says, servers

MODELS = {"data": [{"id": "llava"}]}


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Elsewhere]]:
    with servers() as start:
        yield lambda answer, health=MODELS: start(answer, health)


def chat(url: str, **options: Any) -> VisionChat:
    known = {"model": "llava", "key_env": "NO_KEY", "image_size": None}
    return VisionChat(url, concurrency=2, policy=RetryPolicy(5, 5, 0, 0.01), **(known | options))


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


def test_the_prompt_takes_its_place_and_other_braces_stay():
    assert fill_template("Is it {prompt}? {yes}", "{two} [dogs]") == "Is it {two} [dogs]? {yes}"


def test_resizing_is_pillows():
    torch.manual_seed(0)
    image = torch.randint(0, 256, (3, 10, 6), dtype=torch.uint8)
    expected = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((7, 7))
    found = Image.fromarray(resize_to_square(image, 7).permute(1, 2, 0).numpy())
    assert found.tobytes() == expected.tobytes()
    assert resize_to_square(image, None) is image
