import pytest
import torch

from rlfactory.reward.base import Samples, check_scores
from rlfactory.reward.length import Length


def score(reward, texts):
    samples = Samples([""] * len(texts), [{}] * len(texts), torch.arange(len(texts)), texts=texts)
    scores = reward.score(samples)
    check_scores(reward, scores, len(texts))
    return scores


def test_words_against_the_target():
    texts = [" word" * n for n in (0, 1, 2, 4, 6, 8, 20)]
    scores = score(Length(target=4), texts)
    assert scores["length"].tolist() == [0, 0.25, 0.5, 1, 0.5, 0, 0]
    assert scores["words"].tolist() == [0, 1, 2, 4, 6, 8, 20]


def test_characters_against_the_target():
    scores = score(Length(target=10, unit="characters"), [" ab\n", "é" * 10, "x" * 15])
    torch.testing.assert_close(scores["length"], torch.tensor([0.4, 1, 0.5]))
    assert scores["characters"].tolist() == [4, 10, 15]


@pytest.mark.parametrize("target", [1, 7, 100])
def test_it_rises_to_the_target_and_falls_after_it(target):
    values = score(Length(target=target), ["w " * n for n in range(2 * target + 3)])["length"]
    assert values.argmax() == target
    assert (values.diff()[:target] > 0).all()
    assert (values.diff()[target : 2 * target] < 0).all()
    assert values.min() == 0


def test_the_prompt_does_not_count():
    samples = Samples(["a long prompt"], [{}], torch.arange(1), texts=["two words"])
    assert Length(target=2).score(samples)["length"].tolist() == [1]


def test_samples_without_texts():
    images = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    with pytest.raises(TypeError, match="texts"):
        Length(target=2).score(Samples([""], [{}], torch.arange(1), images))
    with pytest.raises(TypeError, match="1 texts for 2 prompts"):
        Length(target=2).score(Samples(["", ""], [{}] * 2, torch.arange(2), texts=[""]))
