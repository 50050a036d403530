"""Soft-TIFA: what is asked, which tokens say an answer, and the means of a prompt's atoms."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.geneval2 import GenEval2Prompts
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.geneval2 import GenEval2, combined, probability

from .elsewhere import Elsewhere, asked, servers

MODELS = {"data": [{"id": "judge"}]}
QUESTIONS = [["How many cats are in the image?", "four"], ["Are the cats red?", "Yes"]]


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Elsewhere]]:
    with servers() as start:
        yield lambda answer, health=MODELS: start(answer, health)


def reply(tokens: dict[str, float]) -> tuple[int, object]:
    listed = [{"token": token, "logprob": math.log(p)} for token, p in tokens.items()]
    content = [{"token": next(iter(tokens)), "top_logprobs": listed}]
    return 200, {"choices": [{"message": {"content": "x"}, "logprobs": {"content": content}}]}


def drawn(*metadata: dict[str, Any]) -> Samples:
    count = len(metadata)
    images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, 8, 8)
    return Samples(["p"] * count, [*metadata], torch.arange(count), images)


def reward(server: Elsewhere, **options: Any) -> GenEval2:
    given = {"model": "judge", "retries": 0, "backoff": 0.01}
    return GenEval2(url=server.url, **(given | options))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Yes", 0.5 + 0.1 + 0.05),
        ("four", 0.2 + 0.04),
        ("two", 0.0),
        ("No", 0.03),
    ],
)
def test_tokens_that_say_an_answer(answer: str, expected: float) -> None:
    tokens = {"Yes": 0.5, " yes": 0.1, "yes": 0.05, "4": 0.2, " Four": 0.04, "No": 0.03, "fo": 0.02}
    assert probability(tokens, answer) == pytest.approx(expected)


def test_means() -> None:
    assert combined([0.5, 0.25, 1.0], "geometric") == pytest.approx(0.5)
    assert combined([0.5, 0.25, 1.0], "arithmetic") == pytest.approx(1.75 / 3)
    assert combined([0.5, 0.0], "geometric") == 0
    assert math.isnan(combined([0.5, math.nan], "geometric"))


def test_it_is_asked_and_scored_as_published(elsewhere: Callable[..., Elsewhere]) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, object]:
        text, picture = asked(body)
        if text.startswith("How many"):
            return reply({"four": 0.4, " 4": 0.1, "five": 0.5})
        return reply({"Yes": 0.5 / (1 + picture.getpixel((0, 0))[0]), "No": 0.3})

    server = elsewhere(answer)
    samples = drawn({"vqa_list": QUESTIONS}, {"vqa_list": QUESTIONS}, {"vqa_list": QUESTIONS[:1]})
    for mean, expected in (
        ("geometric", [0.5, math.sqrt(0.5 * 0.25), 0.5]),
        ("arithmetic", [0.5, 0.375, 0.5]),
    ):
        model = reward(server, mean=mean)
        scores = model.score(samples)
        check_scores(model, scores, 3)
        assert scores["geneval2"].tolist() == pytest.approx(expected)
        assert scores["geneval2_atoms"].tolist() == pytest.approx([0.5, 0.375, 0.5])
    texts = {asked(body)[0] for _, body in server.asked}
    assert texts == {f"{question} Answer in one word." for question, _ in QUESTIONS}
    body = server.asked[0][1]
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"]) == (1, True, 20)
    assert body["temperature"] == 0


def test_without_log_probabilities_there_is_no_score(elsewhere: Callable[..., Elsewhere]) -> None:
    silent = elsewhere(lambda _: (200, {"choices": [{"message": {"content": "Yes"}}]}))
    assert reward(silent).score(drawn({"vqa_list": QUESTIONS}))["geneval2"].isnan().all()


def test_one_question_without_an_answer_leaves_the_sample_without(
    elsewhere: Callable[..., Elsewhere],
) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, object]:
        text, picture = asked(body)
        failing = text.startswith("Are") and picture.getpixel((0, 0))[0] == 0
        return (400, {}) if failing else reply({"four": 0.5, "Yes": 0.5})

    scores = reward(elsewhere(answer)).score(
        drawn({"vqa_list": QUESTIONS}, {"vqa_list": QUESTIONS})
    )
    assert scores["geneval2"].isnan().tolist() == [True, False]
    assert scores["geneval2_atoms"].isnan().tolist() == [True, False]


@pytest.mark.parametrize(
    "listed", [None, [], "Is it red?", ["Is it red?"], [["Is it red?"]], [["Is it red?", 1]]]
)
def test_prompts_without_questions_are_refused(
    listed: object, elsewhere: Callable[..., Elsewhere]
) -> None:
    model = reward(elsewhere(lambda _: reply({"Yes": 1.0})))
    model.check_prompts(GenEval2Prompts().draw(4, seed=0, iteration=0))
    with pytest.raises(RewardError, match=r"can't score the prompt 'p'.*prompts=geneval2 fits"):
        model.check_prompts([Prompt("p", {"vqa_list": listed})])
    assert model.score(drawn({"vqa_list": listed}))["geneval2"].isnan().all()
