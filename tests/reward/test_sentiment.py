import pytest
import torch
import yaml

from rlfactory.config.options import packaged_folder
from rlfactory.reward.base import RewardError, check_scores
from rlfactory.reward.sentiment import Sentiment, log_odds
from rlfactory.train.build import instantiate_group

TEXTS = ["good", "the movie was a waste of time !", "bad bad movies", ""]
CPU = torch.device("cpu")


@pytest.fixture
def path(save_classifier):
    return str(save_classifier("NEGATIVE", "NEUTRAL", "POSITIVE"))


@pytest.fixture
def score(samples_of):
    def score(reward, texts=TEXTS, prompts=None):
        scores = reward.score(samples_of(texts, prompts))
        check_scores(reward, scores, len(texts))
        return scores["sentiment"]

    return score


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("label", [0, 1])
def test_log_odds_are_those_of_the_softmax(count, label):
    logits = 3 * torch.randn(50, count, generator=torch.Generator().manual_seed(0))
    p = logits.double().softmax(1)[:, label]
    found = log_odds(logits, label, independent=False)
    torch.testing.assert_close(found.double(), (p / (1 - p)).log(), atol=1e-5, rtol=1e-5)
    assert torch.equal(log_odds(logits, label, independent=True), logits[:, label])


def test_log_odds_stay_apart_where_probabilities_do_not():
    found = log_odds(torch.tensor([[-30.0, 30.0], [-40.0, 40.0]]), 1, independent=False)
    assert found.tolist() == [60, 80]
    assert found.sigmoid().tolist() == [1, 1]


def test_outputs_agree_with_the_classifiers_own_logits(path, score):
    reward = Sentiment(CPU, path=path)
    logits = reward.logits(TEXTS)
    prob = score(reward)
    torch.testing.assert_close(prob, logits.softmax(1)[:, 2])
    assert prob.std() > 0.05
    torch.testing.assert_close(score(Sentiment(CPU, path=path, output="logit")), logits[:, 2])
    odds = score(Sentiment(CPU, path=path, output="log_odds"))
    torch.testing.assert_close(odds, prob.logit(), atol=1e-4, rtol=1e-4)


def test_labels_are_named_in_any_case_and_share_the_probability(path, score):
    each = [score(Sentiment(CPU, path=path, label=name)) for name in ("negative", "Neutral")]
    torch.testing.assert_close(sum(each) + score(Sentiment(CPU, path=path)), torch.ones(4))
    assert not torch.allclose(*each)


def test_an_unknown_label_is_an_error_that_lists_them(path):
    with pytest.raises(RewardError, match=r"reward\.label=JOY .* NEGATIVE, NEUTRAL, POSITIVE"):
        Sentiment(CPU, path=path, label="JOY")


def test_what_is_judged(path, score):
    together = Sentiment(CPU, path=path)
    assert torch.equal(
        score(together, [" was bad"], ["the movie"]), score(together, ["the movie was bad"])
    )
    alone = Sentiment(CPU, path=path, judge="completion")
    assert torch.equal(score(alone, [" was bad"], ["the movie"]), score(together, [" was bad"]))
    assert score(alone, ["bad"]) != score(together, ["bad"], ["good"])


def test_the_prefix_stands_before_each_text(path, score):
    prefixed = Sentiment(CPU, path=path, prefix="<")
    assert torch.equal(
        score(prefixed, ["bad"], ["the "]), score(Sentiment(CPU, path=path), ["<the bad"])
    )


def test_float16_probabilities_are_rounded_like_a_softmax_in_float16(path, score):
    reward = Sentiment(CPU, path=path, dtype="float16")
    found = score(reward)
    assert torch.equal(found, found.half().float())
    expected = reward.logits(TEXTS).softmax(1)[:, 2].float()
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)


def test_labels_that_do_not_exclude_each_other(save_classifier, score):
    path = save_classifier("toxic", "rude", problem_type="multi_label_classification")
    reward = Sentiment(CPU, path=str(path), label="toxic")
    expected = reward.logits(TEXTS)[:, 0].sigmoid()
    torch.testing.assert_close(score(reward), expected)


def test_a_logit_that_float16_cannot_hold_is_no_score(save_classifier, score):
    path = str(save_classifier("NEGATIVE", "POSITIVE", bias=1e5))
    for output in ("prob", "logit", "log_odds"):
        assert score(Sentiment(CPU, path=path, output=output, dtype="float16")).isnan().all()


def test_a_missing_folder_names_the_key():
    with pytest.raises(RewardError, match=r"^reward\.path=/nonesuch .*no folder /nonesuch"):
        Sentiment(CPU, path="/nonesuch")


@pytest.mark.parametrize(("option", "label"), [("sentiment", 2), ("negative_sentiment", 0)])
def test_the_options_are_built_on_the_device(path, option, label):
    file = packaged_folder("conf") / "reward" / f"{option}.yaml"
    config = yaml.safe_load(file.read_text())
    config["reward"]["path"] = path
    reward = instantiate_group(config, "reward", device=CPU)
    assert reward.label == label
    assert reward.device == CPU


def test_its_network_is_found_to_be_moved(save_classifier) -> None:
    from rlfactory.train.scoring.async_scorer import networks_of

    reward = Sentiment(torch.device("cpu"), path=str(save_classifier("NEGATIVE", "POSITIVE")))
    assert networks_of([reward]) == [reward.model]


def test_the_score_of_negative_texts_says_so(path, samples_of):
    node = yaml.safe_load((packaged_folder("conf") / "reward/negative_sentiment.yaml").read_text())
    node = node["reward"] | {"path": path}
    reward = instantiate_group({"reward": node}, "reward", device=CPU)
    assert reward.main == "negative_sentiment"
    negative = reward.score(samples_of(TEXTS, None))["negative_sentiment"]
    former = Sentiment(CPU, path=path, label="NEGATIVE").score(samples_of(TEXTS, None))
    assert torch.equal(negative.nan_to_num(9), former["sentiment"].nan_to_num(9))
