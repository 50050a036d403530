"""A classifier as a reward."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rlfactory.reward.base import RewardError, Samples
from rlfactory.reward.sentiment import Sentiment

CPU = torch.device("cpu")
TEXTS = ["good film", "this is a bad film", "not good", "film is a film is a film is bad"]


def samples(texts: list[str], prompts: list[str] | None = None) -> Samples:
    prompts = prompts or [""] * len(texts)
    return Samples(prompts, [{}] * len(texts), torch.arange(len(texts)), texts=texts)


@pytest.fixture(scope="session")
def folder(classifier_folder: Callable[..., Path]) -> str:
    return str(classifier_folder("NEGATIVE", "POSITIVE"))


def theirs(folder: str, text: str) -> torch.Tensor:
    """The logits of one text alone, by transformers itself."""
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt").input_ids
    with torch.no_grad():
        return network(ids).logits[0]


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_scores_are_the_classifiers_own_however_batched(folder: str, batch_size: int) -> None:
    found = Sentiment(CPU, path=folder, batch_size=batch_size).score(samples(TEXTS))["sentiment"]
    expected = torch.stack([theirs(folder, text).softmax(0)[1] for text in TEXTS])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_labels_outputs_and_their_relation(folder: str) -> None:
    def score(**options: Any) -> torch.Tensor:
        return Sentiment(CPU, path=folder, **options).score(samples(TEXTS))["sentiment"]

    torch.testing.assert_close(score(label="negative"), 1 - score())
    torch.testing.assert_close(score(output="log_odds").sigmoid(), score())
    logits = score(output="logit") - score(output="logit", label="NEGATIVE")
    torch.testing.assert_close(logits, score(output="log_odds"), atol=1e-5, rtol=1e-5)


def test_prompt_and_prefix_are_judged_too(folder: str) -> None:
    together = Sentiment(CPU, path=folder).score(samples([" film"], ["this is a bad"]))
    whole = Sentiment(CPU, path=folder).score(samples(["this is a bad film"]))
    assert together == whole
    alone = Sentiment(CPU, path=folder, judge="completion")
    assert alone.score(samples([" film"], ["this is a bad"])) != whole
    prefixed = Sentiment(CPU, path=folder, prefix="this is a bad ", judge="completion")
    assert prefixed.score(samples(["film"])) == whole


def test_without_the_mask_padding_is_read(folder: str) -> None:
    masked, blind = (
        Sentiment(CPU, path=folder, use_attention_mask=use).score(samples(TEXTS))["sentiment"]
        for use in (True, False)
    )
    longest = max(range(len(TEXTS)), key=lambda i: len(TEXTS[i].split()))
    assert masked[longest] == pytest.approx(blind[longest].item(), abs=1e-5)
    assert (masked - blind).abs().max() > 1e-3


def test_half_precision_is_coarse(folder: str) -> None:
    coarse = Sentiment(CPU, path=folder, dtype="float16").score(samples(TEXTS))["sentiment"]
    fine = Sentiment(CPU, path=folder).score(samples(TEXTS))["sentiment"]
    torch.testing.assert_close(coarse, fine, atol=5e-3, rtol=0)
    assert torch.equal(coarse, coarse.half().float())


def test_a_label_that_it_lacks_is_an_error(folder: str) -> None:
    with pytest.raises(RewardError, match="NEGATIVE, POSITIVE"):
        Sentiment(CPU, path=folder, label="sarcastic")


@pytest.mark.parametrize("path", ["/no/where", "zoo:nothing"])
def test_a_missing_classifier_is_an_error(path: str) -> None:
    with pytest.raises(RewardError, match="reward.path"):
        Sentiment(CPU, path=path)


def test_pictures_are_refused(folder: str) -> None:
    with pytest.raises(TypeError, match="texts"):
        Sentiment(CPU, path=folder).score(Samples([""], [{}], torch.arange(1)))
