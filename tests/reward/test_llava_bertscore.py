"""BERTScore of what a model says of pictures."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from rlfactory.reward.base import Samples, check_scores
from rlfactory.reward.llava_bertscore import LlavaBertScore

from .elsewhere import Elsewhere, servers

CPU = torch.device("cpu")


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Elsewhere]]:
    with servers() as start:
        yield lambda answer: start(answer, {"data": [{"id": "llava"}]})


def test_the_reward(elsewhere, encoder):
    answers = iter(["the image contains the movie", " ", "a waste"])

    def describe(body: dict[str, Any]) -> tuple[int, object]:
        said = next(answers)
        return (200, {"choices": [{"message": {"content": said}}]})

    server = elsewhere(describe)
    reward = LlavaBertScore(
        CPU,
        url=server.url,
        model="llava",
        encoder=str(encoder),
        layer=2,
        concurrency=1,
        retries=0,
    )
    images = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    samples = Samples(["the movie"] * 4, [{}] * 4, torch.arange(4), images)
    scores = reward.score(samples)
    check_scores(reward, scores, 4)
    found = scores["llava_bertscore"]
    assert found[0].item() == pytest.approx(1, abs=1e-5)
    assert found.isnan().tolist() == [False, True, False, True]
    assert found[2] < 0.999
    question = server.asked[0][1]["messages"][0]["content"][1]["text"]
    assert question == "Answer concisely: what is going on in this image?"
    server.answer = lambda body: (400, b"")
    assert reward.score(samples)["llava_bertscore"].isnan().all()
