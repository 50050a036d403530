import pytest
import torch

from rlfactory.reward.base import Samples, check_scores
from rlfactory.reward.repetition import Repetition
from rlfactory.utils.text import repeated_share

WORDS = [f"w{i}" for i in range(12)]


def score(texts, **options):
    samples = Samples([""] * len(texts), [{}] * len(texts), torch.arange(len(texts)), texts=texts)
    reward = Repetition(**options)
    scores = reward.score(samples)
    check_scores(reward, scores, len(texts))
    return scores["repetition"].tolist()


@pytest.mark.parametrize("ngram", [1, 2, 3, 12])
def test_distinct_words_repeat_nothing(ngram):
    assert score([" ".join(WORDS)], ngram=ngram) == [0]


@pytest.mark.parametrize("ngram", [1, 2, 3])
@pytest.mark.parametrize("count", [4, 50])
def test_one_word_again_and_again_repeats_all_but_the_first(ngram, count):
    grams = count - ngram + 1
    assert score(["so " * count], ngram=ngram) == pytest.approx([-(grams - 1) / grams])


def test_texts_shorter_than_an_ngram_score_nothing():
    assert score(["", "  ", "so", "so so"]) == [0, 0, 0, 0]


def test_counted_by_hand():
    """Trigrams: a-b-c b-c-a c-a-b a-b-c b-c-d: one of five occurred before."""
    assert score(["a b c a b c d"]) == pytest.approx([-0.2])
    assert score(["a b c a b c d"], ngram=2) == pytest.approx([-2 / 6])


def test_case_and_spacing_do_not_hide_a_repetition():
    assert repeated_share("So good\n\nso  GOOD", 2) == pytest.approx(1 / 3)
    assert repeated_share("so good so good.", 2) == 0
