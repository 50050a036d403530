"""The Bradley-Terry loss, and a network that learns a preference by it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, GPT2ForSequenceClassification

from rlfactory.tools.reward_model.training import (
    EncodedPair,
    Pair,
    RewardModelOptions,
    bradley_terry,
    encode_pair,
    scores_of,
    train,
)
from rlfactory.utils.errors import TrainingError

PAIRS = [Pair(f"Film {i}:", " good.", " dull stuff.", " good.") for i in range(24)]


@pytest.fixture
def network(gpt2_folder: Path) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        made = GPT2ForSequenceClassification.from_pretrained(gpt2_folder, num_labels=1)
    return made.eval()


@pytest.fixture
def pairs(gpt2_folder: Path) -> list[EncodedPair]:
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    return [encode_pair(tokenizer, pair, tokenizer.eos_token) for pair in PAIRS]


def test_golden_loss() -> None:
    """-log sigmoid(1) = 0.3133, -log sigmoid(0) = log 2, -log sigmoid(-2) = 2.1269."""
    found = bradley_terry(torch.tensor([1.5, 0.2, -1.0]), torch.tensor([0.5, 0.2, 1.0]))
    torch.testing.assert_close(found, torch.tensor([0.313262, 0.693147, 2.126928]))


def test_a_pair_begins_and_ends_as_the_policys_texts(pairs: list[EncodedPair]) -> None:
    end = 256
    assert pairs[0].chosen[0] == pairs[0].chosen[-1] == pairs[0].rejected[-1] == end
    assert end not in pairs[0].chosen[1:-1]
    assert pairs[0].longest == len(pairs[0].rejected)


def test_batches_and_padding_change_no_score(network: Any, pairs: list[EncodedPair]) -> None:
    texts = [ids for pair in pairs[:4] for ids in (pair.chosen, pair.rejected)]
    torch.testing.assert_close(
        scores_of(network, texts, 8), scores_of(network, texts, 1), atol=1e-5, rtol=1e-5
    )


def run(network: Any, pairs: list[EncodedPair], **options: Any) -> list[float]:
    losses: list[float] = []
    train(network, pairs, RewardModelOptions(**options), lambda epoch, loss: losses.append(loss))
    return losses


def test_it_learns_the_preference(network: Any, pairs: list[EncodedPair]) -> None:
    losses = run(network, pairs, epochs=4, lr=1e-3, batch=8, micro_batch=8)
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    chosen, rejected = (
        scores_of(network, [getattr(p, name) for p in pairs], 8) for name in ("chosen", "rejected")
    )
    assert (chosen > rejected).float().mean() > 0.9


def test_micro_batches_change_nothing_and_the_seed_does(
    network: Any, pairs: list[EncodedPair]
) -> None:
    begun = {k: v.clone() for k, v in network.state_dict().items()}

    def losses(**options: Any) -> list[float]:
        network.load_state_dict(begun)
        return run(network, pairs, epochs=2, lr=1e-4, batch=8, **options)

    whole = losses(micro_batch=8)
    assert losses(micro_batch=3) == pytest.approx(whole, abs=1e-3)
    assert losses(micro_batch=8) == whole
    assert losses(micro_batch=8, seed=1) != whole


def test_divergence_is_an_error(network: Any, pairs: list[EncodedPair]) -> None:
    with torch.no_grad():
        network.score.weight.fill_(torch.nan)
    with pytest.raises(TrainingError, match="smaller --lr"):
        run(network, pairs)
