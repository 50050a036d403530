"""Models that judge pictures: what they are asked, what is read of their answers, and failures."""

import logging
import math
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.chat import ChatText
from rlfactory.prompts.ops.pictured import PicturedText, png_of
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.judge import (
    UNIFIED_PATTERN,
    LLMJudge,
    UnifiedReward,
    VideoJudge,
    VLMJudge,
    parse_scores,
)

from .elsewhere import Elsewhere, asked, says, servers

MODELS = {"data": [{"id": "judge"}, {"id": "UnifiedReward-7b-v1.5"}]}


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Elsewhere]]:
    with servers() as start:
        yield lambda answer, health=MODELS: start(answer, health)


def drawn(*prompts: str, size: int = 8) -> Samples:
    count = len(prompts)
    images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, size, size)
    return Samples(prompts, [{}] * count, torch.arange(count), images)


def judge(server: Elsewhere, **options: Any) -> VLMJudge:
    given = {"model": "judge", "question": "Is it {prompt}? {yes}", "retries": 0, "backoff": 0.01}
    return VLMJudge(url=server.url, **(given | options))


def unified(server: Elsewhere, **options: Any) -> UnifiedReward:
    return UnifiedReward(url=server.url, **({"retries": 0, "backoff": 0.01} | options))


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ("Final Score: 4", 0.8),
        ("It is fine.\nFinal Score:3.5\nThanks", 0.7),
        ("Final Score:  5.0 and Final Score: 1", 1.0),
        ("Final Score: 1", 0.2),
        ("Final Score: 10", math.nan),
        ("Final Score: 5.5", math.nan),
        ("Final Score: 0", math.nan),
        ("Final Score: good", math.nan),
        ("final score: 4", math.nan),
        ("", math.nan),
    ],
)
def test_what_unifiedreward_says(said, score):
    found = parse_scores([said], re.compile(UNIFIED_PATTERN), 1.0, 5.0) / 5
    assert found.tolist() == pytest.approx([score], nan_ok=True)


def test_unifiedreward_is_asked_as_published(elsewhere):
    server = elsewhere(says(lambda body: f"Final Score: {1 + asked(body)[1].getpixel((0, 0))[0]}"))
    reward = unified(server)
    scores = reward.score(drawn("a cat", "{two} [dogs]", "x"))
    check_scores(reward, scores, 3)
    assert scores["unifiedreward"].tolist() == pytest.approx([0.2, 0.4, 0.6])
    bodies = {asked(body)[0][-12:]: body for _, body in server.asked}
    body = bodies["{two} [dogs]"[-11:] + "]"]
    text, picture = asked(body)
    assert text.startswith("<image>\nYou are given a text caption and a generated image based on")
    assert "assign a score from 1 to 5 after 'Final Score:'.\nYour task is provided" in text
    assert text.endswith("\nText Caption: [{two} [dogs]]")
    assert (picture.size, body["model"]) == ((512, 512), "UnifiedReward-7b-v1.5")
    assert body["temperature"] == 0


def test_a_judge_of_ones_own(elsewhere):
    answers = {"a": "Score: 10", "b": "Score: -2.5 or Score: 9", "c": "Score: 11", "d": "none"}
    server = elsewhere(says(lambda body: answers[asked(body)[0][6]]))
    reward = judge(server, low=-10.0)
    scores = reward.score(drawn(*"abcd"))["vlm_judge"]
    assert scores[:2].tolist() == pytest.approx([1, 0.375])
    assert scores[2:].isnan().all()
    text, picture = asked(server.asked[0][1])
    assert text in {f"Is it {name}? {{yes}}" for name in "abcd"}
    assert picture.size == (8, 8)


def test_a_judge_of_edits_sees_the_picture_and_its_edit(elsewhere):
    def colors(body):
        parts = body["messages"][0]["content"]
        assert [part["type"] for part in parts] == ["image_url", "image_url", "text"]
        urls = [part["image_url"]["url"] for part in parts[:2]]
        files = [Image.open(BytesIO(b64decode(url.partition(",")[2]))) for url in urls]
        return [(file.size, file.getpixel((0, 0))[0]) for file in files]

    server = elsewhere(says(lambda body: f"Score: {colors(body)[0][1] - colors(body)[1][1]}"))
    reward = judge(server, shows_source=True)
    pictures = [png_of(Image.new("RGB", (9, 7), (10 - i, 0, 0))) for i in range(2)]
    drawn_twice = drawn("a", "a")
    texts = [PicturedText("a", file) for file in pictures]
    scores = reward.score(replace(drawn_twice, prompts=texts))["vlm_judge"]
    assert scores.tolist() == pytest.approx([1.0, 0.8])
    assert colors(server.asked[0][1])[0][0] == (9, 7)
    with pytest.raises(RewardError, match="'a' has no picture, .* type prompts=edits"):
        reward.score(drawn_twice)


def test_a_judge_of_videos_sees_frames_in_order(elsewhere):
    def levels(body):
        *shown, text = body["messages"][0]["content"]
        assert text["type"] == "text"
        files = [part["image_url"]["url"].partition(",")[2] for part in shown]
        return [Image.open(BytesIO(b64decode(file))).getpixel((0, 0))[0] for file in files]

    server = elsewhere(says(lambda body: f"Score: {levels(body)[-1]}"))
    question = "Is it {prompt}? {yes}"
    reward = VideoJudge(url=server.url, model="judge", question=question, frames=3, backoff=0.01)
    videos = torch.tensor([[1, 2, 3, 4, 5], [2, 3, 4, 5, 6]], dtype=torch.uint8)
    videos = videos[:, :, None, None, None].expand(-1, -1, 3, 8, 8)
    scores = reward.score(replace(drawn("a", "b"), images=videos))["vlm_judge"]
    assert scores.tolist() == pytest.approx([0.5, 0.6])
    assert sorted(levels(body) for _, body in server.asked) == [[1, 3, 5], [2, 4, 6]]
    with pytest.raises(TypeError, match="scores videos"):
        reward.score(drawn("a"))


def written(prompts: list[Any], texts: list[str], answers: list[Any]) -> Samples:
    metadata = [{"rubric": answer} for answer in answers]
    return Samples(prompts, metadata, torch.arange(len(texts)), texts=texts)


def of_texts(server: Elsewhere, **options: Any) -> LLMJudge:
    question = "{prompt}|{response}|{answer}|{yes}"
    given = {"model": "judge", "question": question, "answer_column": "rubric", "retries": 0}
    return LLMJudge(url=server.url, **(given | options))


def test_a_judge_of_texts_sees_prompt_response_and_answer_as_one_text(elsewhere):
    server = elsewhere(says(lambda body: f"Score: {body['messages'][0]['content'].count('a')}"))
    chat = ChatText([{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}])
    samples = written(["{answer}", chat], ["aa {prompt}", "{response}"], ["brief", 7])
    reward = of_texts(server)
    scores = check_scores(reward, reward.score(samples), 2)
    assert scores["llm_judge"].tolist() == pytest.approx([0.3, 0.0])
    asked_of_each = {body["messages"][0]["content"] for _, body in server.asked}
    assert asked_of_each == {
        "{answer}|aa {prompt}|brief|{yes}",
        "system: S\nuser: Q|{response}|7|{yes}",
    }


def test_a_judge_of_texts_without_an_answer(elsewhere):
    server = elsewhere(says(lambda body: "Score: 10"))
    reward = of_texts(server, question="{response}", answer_column=None)
    reward.check_prompts([Prompt("a", {})])
    assert reward.score(written(["a"], ["b"], [None]))["llm_judge"].tolist() == [1.0]
    assert server.asked[0][1]["messages"][0]["content"] == "b"


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({}, "its metadata lacks rubric, which LLMJudge reads"),
        ({"rubric": None}, "its rubric is None; it must be a text or a number"),
        ({"rubric": ["polite"]}, r"its rubric is \['polite'\]; it must be"),
    ],
)
def test_each_prompt_has_the_answer_that_a_question_shows(elsewhere, metadata, said):
    reward = of_texts(elsewhere(says(lambda body: "")))
    with pytest.raises(RewardError, match=said):
        reward.check_prompts([Prompt("a", {"rubric": 1.5}), Prompt("b", metadata)])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"question": "{prompt} {answer}"}, r"reward.question has no \{response\}, for the text"),
        ({"answer_column": None}, "reward.question has {answer}, and no column of answers is"),
        ({"question": "{response}"}, "reward.answer_column=rubric has no effect: reward.question"),
    ],
)
def test_the_question_shows_what_is_judged(elsewhere, options, said):
    with pytest.raises(RewardError, match=said):
        of_texts(elsewhere(says(lambda body: "")), **options)


def test_answers_that_hold_no_score_are_logged(elsewhere, caplog):
    server = elsewhere(says(lambda body: "I'd rather not"))
    with caplog.at_level(logging.ERROR):
        assert judge(server).score(drawn("a", "b"))["vlm_judge"].isnan().all()
    assert '2 answers hold no score; the first says: "I\'d rather not"' in caplog.text


def test_a_sample_without_an_answer_has_no_score(elsewhere, caplog):
    def one_fails(body):
        return (400, b"") if "bad" in asked(body)[0] else says(lambda body: "Score: 5")(body)

    scores = judge(elsewhere(one_fails)).score(drawn("fine", "bad", "good"))["vlm_judge"]
    assert scores.tolist() == pytest.approx([0.5, math.nan, 0.5], nan_ok=True)
    assert "1 samples got no answer" in caplog.text
    assert "hold no score" not in caplog.text


def test_a_server_that_is_busy_is_asked_again(elsewhere):
    attempts = iter([(429, {"error": {"message": "slow down"}}), (503, b"")])
    good = says(lambda body: "Score: 5")
    server = elsewhere(lambda body: next(attempts, None) or good(body))
    assert judge(server, retries=2).score(drawn("a"))["vlm_judge"].tolist() == [0.5]


def test_the_key_comes_from_the_environment(elsewhere, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "k3y")
    server = elsewhere(says(lambda body: "Score: 5"))
    judge(server, key_env="JUDGE_KEY").score(drawn("a"))
    assert server.asked[0][0]["Authorization"] == "Bearer k3y"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "other"}, "reward.model=other is not at .*, which has judge, Unified"),
        ({"pattern": "("}, r"reward.pattern=\( is no regular expression"),
        ({"pattern": r"\d"}, "must have one group"),
        ({"pattern": r"(\d)(\d)"}, "it has 2"),
        ({"low": 3.0, "high": 3.0}, "reward.high=3.0 must be larger than"),
    ],
    ids=str,
)
def test_errors_at_construction(elsewhere, options, said):
    with pytest.raises(RewardError, match=said):
        judge(elsewhere(says(lambda body: "")), **options)


def test_a_question_without_the_prompt(elsewhere, caplog):
    judge(elsewhere(says(lambda body: "")), question="Is it nice?")
    assert "so the model does not see it" in caplog.text
