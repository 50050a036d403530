"""BERTScore's recall: its properties, its numbers by hand, and the reward that is made of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DebertaConfig,
    DebertaForSequenceClassification,
)

from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.bertscore import BertScore, recall
from rlfactory.reward.llava_bertscore import LlavaBertScore

from .conftest import SPECIAL, WORDS, wordpiece
from .elsewhere import Elsewhere, servers

CPU = torch.device("cpu")
SIZES = {
    "vocab_size": len(SPECIAL) + len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "initializer_range": 0.4,
    "pad_token_id": 0,
}


@pytest.fixture(scope="module", params=["bert", "deberta"])
def encoder(request, tmp_path_factory) -> Path:
    """A small encoder saved as those are: with the head that it was published with."""
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    if request.param == "bert":
        BertForMaskedLM(BertConfig(**SIZES)).save_pretrained(folder)
    else:  # with what makes deberta-xlarge-mnli one
        own = {
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_biased_input": False,
            "max_relative_positions": -1,
            "type_vocab_size": 0,
        }
        DebertaForSequenceClassification(DebertaConfig(**SIZES, **own)).save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return folder


@pytest.fixture
def bertscore(encoder) -> BertScore:
    return BertScore(str(encoder), CPU, layer=2, dtype="float32", batch_size=2)


def test_by_hand():
    x = torch.tensor([[[2.0, 0.0], [0.0, 3.0], [1.0, 1.0], [9.0, 9.0]]])
    y = torch.tensor([[[5.0, 0.0], [3.0, 4.0], [-1.0, 7.0]]])
    counted = torch.tensor([[True, True, True, False]])
    real = torch.tensor([[True, True, False]])
    expected = (1 + 0.8 + 7 / 5 / 2**0.5) / 3
    assert recall(x, counted, y, real).tolist() == pytest.approx([expected])


def test_padding_changes_nothing_and_order_does_not_count():
    torch.manual_seed(0)
    x, y = torch.randn(4, 5, 8), -torch.rand(4, 7, 8)
    counted, real = torch.rand(4, 5) > 0.3, torch.rand(4, 7) > 0.3
    counted[:, 0] = real[:, 0] = True
    whole = recall(x, counted, y, real)
    for i in range(4):
        alone = recall(x[i : i + 1, counted[i]], counted[i : i + 1, counted[i]],
                       y[i : i + 1, real[i]], real[i : i + 1, real[i]])  # fmt: skip
        assert alone.item() == pytest.approx(whole[i].item(), abs=1e-6)
    order = torch.randperm(7)
    assert torch.allclose(recall(x, counted, y[:, order], real[:, order]), whole)
    assert torch.allclose(recall(3 * x, counted, 0.1 * y, real), whole, atol=1e-6)


def test_identical_texts_get_one_and_others_less(bertscore):
    texts = ["the movie was good", "a waste of time!", "bad", "the movie was good"]
    others = [*texts[:3], "bad bad bad"]
    found = bertscore.recall(others, texts)
    assert found[:3].tolist() == pytest.approx([1, 1, 1], abs=1e-5)
    assert -1 <= found[3] < 0.999
    assert found.dtype == torch.float32


def test_it_is_over_the_references_tokens(bertscore):
    """What the candidate says beyond the reference costs nothing in itself; what it lacks does."""
    torch.manual_seed(0)
    state = {}

    def embed(texts):
        rows = [[state.setdefault(w, torch.randn(64)) for w in t.split()] for t in texts]
        return torch.stack([torch.stack(row) for row in rows])

    whole = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 4, dtype=torch.bool)
    short, long = embed(["good time"]), embed(["good time bad movie"])
    assert recall(short, whole[0], long, whole[1]).item() == pytest.approx(1)
    assert recall(long, whole[1], short, whole[0]).item() < 0.8


def test_special_tokens_of_the_reference_do_not_count(bertscore):
    _, real, counted = bertscore._embed(["bad", "the movie"])
    assert real.tolist() == [[True, True, True, False], [True] * 4]
    assert counted.tolist() == [[False, True, False, False], [False, True, True, False]]
    assert bertscore.recall(["bad"], [""]).isnan().all()


def test_a_score_does_not_depend_on_its_batch(bertscore):
    texts, others = ["the movie", "a great waste of time", "bad"], ["good", "time", "the bad"]
    together = bertscore.recall(others, texts)
    alone = [bertscore.recall([o], [t]).item() for o, t in zip(others, texts, strict=True)]
    assert together.tolist() == pytest.approx(alone, abs=1e-5)
    backwards = bertscore.recall(others[::-1], texts[::-1]).flip(0)
    assert torch.allclose(together, backwards, atol=1e-5)


def test_layers_differ_and_end(encoder):
    found = [
        BertScore(str(encoder), CPU, layer=n, dtype="float32", batch_size=2).recall(
            ["bad"], ["good"]
        )
        for n in (1, 3)
    ]
    assert found[0] != found[1]
    with pytest.raises(RewardError, match="reward.layer=4, and .* has 3 layers"):
        BertScore(str(encoder), CPU, layer=4, dtype="float32", batch_size=2)


def test_an_encoder_that_is_not_there(tmp_path):
    with pytest.raises(RewardError, match="reward.encoder=.*gone"):
        BertScore(str(tmp_path / "gone"), CPU, layer=1, dtype="float32", batch_size=1)


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
