import pytest
import torch

from rlfactory.prompts.ops.chat import ChatText
from rlfactory.reward.base import RewardError, check_scores
from rlfactory.reward.reward_model import RewardModel

TEXTS = ["good", "the movie was a waste of time !", "bad bad movies"]
CPU = torch.device("cpu")


@pytest.fixture
def path(save_classifier):
    return str(save_classifier("LABEL_0"))


def test_the_score_is_the_logit_itself(path, samples_of):
    reward = RewardModel(CPU, path=path)
    scores = reward.score(samples_of(TEXTS))
    check_scores(reward, scores, len(TEXTS))
    assert torch.equal(scores["reward_model"], reward.logits(TEXTS)[:, 0])
    assert scores["reward_model"].std() > 0.1


def test_a_score_shifts_with_the_head(path, save_classifier, samples_of):
    before = RewardModel(CPU, path=path).score(samples_of(TEXTS))["reward_model"]
    after = RewardModel(CPU, path=str(save_classifier("LABEL_0", bias=7.0)))
    torch.testing.assert_close(after.score(samples_of(TEXTS))["reward_model"], before + 7)


def test_what_is_judged(path, samples_of):
    samples = samples_of([" was bad"], ["the movie"])
    for options, text in (
        ({}, "the movie was bad"),
        ({"judge": "completion"}, " was bad"),
        ({"prefix": "!"}, "!the movie was bad"),
    ):
        reward = RewardModel(CPU, path=path, **options)
        expected = reward.logits([text])[:, 0]
        assert torch.equal(reward.score(samples)["reward_model"], expected)


def test_several_labels_are_no_reward_model(save_classifier):
    path = save_classifier("NEGATIVE", "POSITIVE")
    with pytest.raises(RewardError, match=r"2 labels \(NEGATIVE, POSITIVE\).*reward=sentiment"):
        RewardModel(CPU, path=str(path))


def test_a_missing_folder_names_the_key():
    with pytest.raises(RewardError, match=r"^reward\.path=\./nonesuch "):
        RewardModel(CPU, path="./nonesuch")


def test_a_conversation_is_scored_as_the_classifiers_template_writes_it(path, samples_of):
    prompt = ChatText([{"role": "user", "content": "the movie ?"}])
    samples = samples_of([" was bad"], [prompt])
    reward = RewardModel(CPU, path=path)
    plain = reward.logits(["user: the movie ?\nassistant:  was bad"])[:, 0]
    assert torch.equal(reward.score(samples)["reward_model"], plain)
    template = "{{ bos_token }}{% for m in messages %}{{ m['content'] }} ! {% endfor %}"
    reward.tokenizer.chat_template = template
    reward.tokenizer.save_pretrained(path)
    written = reward.logits(["the movie ? !  was bad ! "])[:, 0]
    assert not torch.equal(plain, written)
    reward = RewardModel(CPU, path=path)
    assert torch.equal(reward.score(samples)["reward_model"], written)
    text = samples_of([" was bad"], ["the movie ?"])
    assert torch.equal(reward.score(text)["reward_model"], written)
    as_it_is = RewardModel(CPU, path=path, text_role="none")
    expected = reward.logits(["the movie ? was bad"])[:, 0]
    assert torch.equal(as_it_is.score(text)["reward_model"], expected)
