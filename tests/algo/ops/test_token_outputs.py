"""What is done to scores before advantages."""

import pytest
import torch

from rlfactory.algo.ops.token_outputs import overlong_penalty, penalise_missing_end, scale_scores

SCORES = torch.tensor([1.0, 2.0, 3.0])
ENDED = torch.tensor([True, False, True])


def test_responses_without_an_end() -> None:
    assert penalise_missing_end(SCORES, ENDED, "none", 5.0).tolist() == [1, 2, 3]
    assert penalise_missing_end(SCORES, ENDED, "penalty", 5.0).tolist() == [1, -3, 3]
    assert penalise_missing_end(SCORES, ENDED, "replace", 5.0).tolist() == [1, -5, 3]


def test_golden_overlong_penalty() -> None:
    """DAPO's own numbers: it rises over 4,096 of 20,480 tokens."""
    lengths = torch.tensor([1, 16384, 18432, 19456, 20480])
    found = overlong_penalty(lengths, 20480, 0.2, 1.0)
    assert found.tolist() == pytest.approx([0, 0, 0.5, 0.75, 1.0])
    assert overlong_penalty(lengths, 20480, 0.2, 3.0)[-1] == pytest.approx(3.0)


def test_without_a_buffer_there_is_no_overlong_penalty() -> None:
    assert overlong_penalty(torch.tensor([5, 8]), 8, 0.0, 1.0).tolist() == [0, 0]


def test_golden_scales() -> None:
    assert scale_scores(SCORES, "none", shift=True).tolist() == [1, 2, 3]
    batch = scale_scores(SCORES, "batch", shift=True)
    assert batch.tolist() == pytest.approx([-1, 0, 1], abs=1e-4)
    std = (2 / 3) ** 0.5
    whitened = scale_scores(SCORES, "whiten", shift=True)
    assert whitened.tolist() == pytest.approx([-1 / std, 0, 1 / std], abs=1e-4)
    kept = scale_scores(SCORES, "whiten", shift=False)
    assert kept.tolist() == pytest.approx([2 - 1 / std, 2, 2 + 1 / std], abs=1e-4)
