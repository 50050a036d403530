"""A reward elsewhere: scores come home to their rows, and failures stay where they are."""

import logging
import math
import socket
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from io import BytesIO
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.remote import Remote, RemoteText, group_batches

from .elsewhere import Answer, Elsewhere, servers

HEALTH = {
    "protocol": 1,
    "media": "texts",
    "main": "length",
    "scores": ["length"],
    "good": 3,
    "metadata": [],
    "max_samples": 100,
}


def lengths(body: dict[str, Any]) -> Answer:
    return 200, {"scores": {"length": [len(text) for text in body["texts"]]}}


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Elsewhere]]:
    with servers() as start:
        yield lambda answer=lengths, health=HEALTH: start(answer, health)


def text_reward(server: Elsewhere, **options: Any) -> RemoteText:
    return RemoteText(url=server.url, **({"retries": 0, "backoff": 0.01} | options))


def test_scores_come_back_to_their_rows(elsewhere, samples_of):
    server = elsewhere()
    reward = text_reward(server, batch_size=2, concurrency=3)
    samples = samples_of(["a" * (7 - i) for i in range(7)])
    scores = reward.score(samples)
    check_scores(reward, scores, 7)
    assert (reward.main, reward.best_score) == ("length", 3)
    assert scores["length"].tolist() == [7, 6, 5, 4, 3, 2, 1]
    assert sorted(len(body["texts"]) for _, body in server.asked) == [1, 2, 2, 2]


def test_groups_are_not_divided():
    torch.manual_seed(0)
    for size in (1, 3, 8, 100):
        groups = torch.randint(0, 9, (50,))
        batches = group_batches(groups, size)
        assert sorted(sum(batches, [])) == [*range(50)]
        of = [{int(groups[i]) for i in rows} for rows in batches]
        assert sum(map(len, of)) == len(set().union(*of)), "each group is in one batch"
        pairs = zip(batches, of, strict=True)
        assert all(len(rows) <= size or len(found) == 1 for rows, found in pairs)


def test_what_the_server_takes_at_most(elsewhere, samples_of):
    server = elsewhere(health=HEALTH | {"max_samples": 2})
    text_reward(server, batch_size=100).score(samples_of(["a"] * 5))
    assert max(len(body["texts"]) for _, body in server.asked) == 2


def test_no_more_at_once_than_allowed(elsewhere, samples_of):
    def slow(body):
        sleep(0.05)
        return lengths(body)

    server = elsewhere(slow)
    text_reward(server, batch_size=1, concurrency=3).score(samples_of(["a"] * 9))
    assert server.most == 3


def test_pictures_prompts_and_metadata_are_sent(elsewhere):
    def red(body):
        files = [b64decode(text) for text in body["images"]["data"]]
        if body["images"]["format"] == "png":
            arrays = [np.asarray(Image.open(BytesIO(file))) for file in files]
        else:
            shape = body["images"]["shape"]
            arrays = [np.frombuffer(f, np.uint8).reshape(shape).transpose(1, 2, 0) for f in files]
        return 200, {"scores": {"red": [float(a[..., 0].mean()) for a in arrays]}}

    server = elsewhere(red, HEALTH | {"media": "images", "main": "red", "metadata": ["scene"]})
    images = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1).repeat(1, 3, 5, 6)
    images[:, 1:] = 99
    samples = Samples(list("abcd"), [{"scene": i} for i in range(4)], torch.arange(4), images)
    for encoding in ("png", "raw"):
        reward = Remote(url=server.url + "/", retries=0, encoding=encoding)
        assert reward.score(samples)["red"].tolist() == [0, 1, 2, 3]
        (_, body), server.asked = server.asked[0], []
        assert (body["prompts"], body["metadata"][3]) == ([*"abcd"], {"scene": 3})
    bare = Samples(list("abcd"), [{}] * 4, torch.arange(4), images)
    with pytest.raises(RewardError, match="reads scene of each prompt's metadata"):
        reward.score(bare)
    odd = Samples(list("abcd"), [{"scene": {1, 2}}] * 4, torch.arange(4), images)
    with pytest.raises(RewardError, match="can't be sent as JSON"):
        reward.score(odd)


NONSENSE = [
    (200, b"<html>"),
    (200, b""),
    (200, {}),
    (200, {"scores": {"length": [1.0]}}),
    (200, {"scores": {"length": [1.0, 2.0, 3.0]}}),
    (200, {"scores": {"length": [1.0, "high"]}}),
    (200, b'{"scores": {"length": [NaN, 1]}}'),
    (200, {"scores": {"other": [1.0, 2.0]}}),
    (302, b""),
    (404, {"error": "gone"}),
    (500, b"\xff"),
]


@pytest.mark.parametrize("answer", NONSENSE, ids=str)
def test_a_failed_request_fails_its_own_samples(elsewhere, samples_of, answer, caplog):
    def one_fails(body):
        return answer if "bad" in body["texts"] else lengths(body)

    server = elsewhere(one_fails)
    reward = text_reward(server, batch_size=2)
    samples = Samples([""] * 4, [{}] * 4, torch.tensor([0, 0, 1, 1]), texts=["a", "ab", "bad", ""])
    with caplog.at_level(logging.ERROR):
        scores = reward.score(samples)
    check_scores(reward, scores, 4)
    assert scores["length"][:2].tolist() == [1, 2]
    assert scores["length"][2:].isnan().all()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"2 samples got no score from {server.url}: ")


def test_null_is_a_score_that_could_not_be_had(elsewhere, samples_of):
    server = elsewhere(lambda body: (200, {"scores": {"length": [None, 1], "x": [2, None]}}))
    scores = text_reward(server).score(samples_of(["a", "b"]))
    assert math.isnan(scores["length"][0])
    assert scores["x"].isnan().tolist() == [False, True]


def test_its_options_reach_the_server(elsewhere, samples_of, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    attempts = iter([(503, b""), (200, {"scores": {}})])
    server = elsewhere(lambda body: next(attempts, None) or lengths(body))
    reward = text_reward(server, retries=2, token_env="MY_TOKEN")
    assert reward.score(samples_of(["abc"]))["length"].tolist() == [3]
    assert [h["Authorization"] for h, _ in server.asked] == ["Bearer s3cret"] * 3


def test_an_address_that_is_none():
    with pytest.raises(RewardError, match=r"^reward\.url=127\.0\.0\.1:8000 is no address"):
        Remote(url="127.0.0.1:8000")


def test_a_slow_server(elsewhere, samples_of, caplog):
    release = threading.Event()

    def slow(body):
        release.wait(60)
        return lengths(body)

    reward = text_reward(elsewhere(slow), timeout=0.1, retries=1)
    began = monotonic()
    assert reward.score(samples_of(["a"]))["length"].isnan().all()
    assert monotonic() - began < 30
    assert "no complete answer within 0.1 s (attempt 2, the last)" in caplog.text
    release.set()


def test_a_server_that_is_down():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(RewardError, match=r"reward.url=http://127.0.0.1:\d+: no reward answers"):
        Remote(url=f"http://127.0.0.1:{port}")


def test_a_server_that_goes_down_meanwhile(elsewhere, samples_of, caplog):
    server = elsewhere()
    reward = text_reward(server, retries=1)
    server.shutdown()
    server.server_close()
    assert reward.score(samples_of(["a", "b"]))["length"].isnan().all()
    assert "2 samples got no score" in caplog.text


def test_the_server_says_what_is_better_of_further_scores(elsewhere):
    assert text_reward(elsewhere(health=HEALTH)).better == {}  # an earlier version
    told = HEALTH | {"better": {"words": "lower"}}
    assert text_reward(elsewhere(health=told)).better == {"words": "lower"}


@pytest.mark.parametrize(
    ("health", "said"),
    [
        ({}, "is no reward server"),
        (b"hello", "no JSON"),
        (HEALTH | {"protocol": 2}, "speaks protocol 2, and this is 1"),
        (HEALTH | {"protocol": None}, "speaks protocol None"),
        (HEALTH | {"main": 3}, "is no reward server: in /health main is 3, not "),
        (HEALTH | {"scores": [1]}, r"is no reward server: in /health scores.*0.* is 1, not "),
        (HEALTH | {"better": {"words": "less"}}, "is no reward server"),
        (HEALTH | {"media": "images"}, "scores images, and this run makes texts.*reward=remote"),
    ],
    ids=str,
)
def test_health_is_checked_first(elsewhere, health, said):
    with pytest.raises(RewardError, match=said):
        text_reward(elsewhere(health=health))
