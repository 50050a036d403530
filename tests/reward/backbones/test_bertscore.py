"""BERTScore's recall: its properties and its numbers by hand."""

import pytest
import torch

from rlfactory.reward.base import RewardError
from rlfactory.reward.llava_bertscore import BertScore, recall

CPU = torch.device("cpu")


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
    with pytest.raises(RewardError, match="reward.layer=4: .* has 3 layers"):
        BertScore(str(encoder), CPU, layer=4, dtype="float32", batch_size=2)


def test_an_encoder_that_is_not_there(tmp_path):
    with pytest.raises(RewardError, match="reward.encoder=.*gone"):
        BertScore(str(tmp_path / "gone"), CPU, layer=1, dtype="float32", batch_size=1)
