"""Truncated importance weights of tokens that an engine drew."""

import math
from dataclasses import replace

import pytest
import torch

from rlfactory.algo.ops.token_surrogate import rollout_correction_weights
from rlfactory.rollout import Tokens
from rlfactory.train.iteration_metrics import mismatch_metrics

MASK = torch.tensor([[True, True, True], [True, False, False]])
ZEROS = torch.zeros(2, 3)
TOKENS = Tokens(
    prompt=torch.ones(2, 1, dtype=torch.int64),
    prompt_mask=torch.ones(2, 1, dtype=torch.bool),
    response=torch.ones(2, 3, dtype=torch.int64),
    mask=MASK,
    ended=torch.tensor([False, True]),
    log_prob=torch.tensor([[0.5, 0.2, 0.9], [0.25, 1.0, 1.0]]).log(),
    value=ZEROS,
    # of padding too, which must not count
    engine_log_prob=torch.tensor([[0.5, 0.4, 0.1], [0.2, 0.01, 0.01]]).log(),
)


def test_golden_weights() -> None:
    """min(p / q, C), as `torch.clamp(exp(old - sampled), max=C)` of TRL 1.16 gives."""
    weights, cut = rollout_correction_weights(TOKENS, 2.0)
    assert weights.tolist() == pytest.approx([1.0, 0.5, 2.0, 1.25])
    assert cut.tolist() == [0, 0, 1, 0]


def test_golden_mismatch() -> None:
    found = mismatch_metrics(TOKENS)
    off = [0.0, math.log(2), math.log(9), math.log(1.25)]
    assert found["engine/log_prob_mismatch_mean"] == pytest.approx(sum(off) / 4)
    assert found["engine/log_prob_mismatch_max"] == pytest.approx(max(off))


def test_our_own_loop_has_no_mismatch() -> None:
    own = replace(TOKENS, engine_log_prob=None)
    assert mismatch_metrics(own) == {}
    with pytest.raises(ValueError, match="drawn by no engine"):
        rollout_correction_weights(own, 2.0)


def test_weights_make_the_mean_that_of_the_trainer() -> None:
    """Without a cap, E_q[(p / q) f] = E_p[f] for any f."""
    p, q, f = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.3, 0.5]), torch.arange(3.0)
    one = torch.ones(1, 3, dtype=torch.bool)
    tokens = replace(
        TOKENS,
        prompt=torch.ones(1, 1, dtype=torch.int64),
        prompt_mask=one[:, :1],
        mask=one,
        ended=one[:, 0],
        log_prob=p.log()[None],
        engine_log_prob=q.log()[None],
    )
    weights, _ = rollout_correction_weights(tokens, 1e9)
    torch.testing.assert_close((q * weights * f).sum(), (p * f).sum())
