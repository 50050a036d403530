"""What becomes of rewards between the reward and the loss."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from rlfactory.rollout import Rollout
from rlfactory.run.tally import Tally
from rlfactory.scoring import TrainingError, require_replay, reward_metrics, scored

NAN = float("nan")


@pytest.fixture
def rollout(linear: Callable[..., object], roll: Callable[..., Rollout]) -> Rollout:
    rewards = {"main": torch.tensor([0.0, 2.0, NAN, 4.0]), "other": torch.ones(4)}
    made = roll(linear(), [0.0] * 4)
    return replace(made, rewards=rewards, groups=torch.tensor([0, 0, 1, 1]))


def test_metrics_pass_over_what_failed(rollout: Rollout) -> None:
    metrics = reward_metrics(rollout)
    assert metrics["reward/main/mean"] == pytest.approx(2.0)
    assert metrics["reward/main/std"] == pytest.approx((8 / 3) ** 0.5)
    assert metrics["reward/main/group_std"] == pytest.approx(0.5)  # of [0, 2] and [4]
    assert metrics["reward/main/failed"] == 0.25
    assert metrics["reward/other/failed"] == 0
    assert metrics["reward/other/group_std"] == 0


def test_failed_samples_leave_the_rollout(rollout: Rollout) -> None:
    kept = scored(rollout, "main", max_failed=0.25)
    assert kept.index.tolist() == [0, 1, 3]
    assert kept.prompts == ["prompt 0", "prompt 1", "prompt 3"]
    assert kept.transitions is not None
    assert len(kept.transitions.log_prob) == 3


def test_more_failures_than_allowed(rollout: Rollout) -> None:
    with pytest.raises(TrainingError, match=r"25\.0%.*main.*max_failed=20\.0%"):
        scored(rollout, "main", max_failed=0.2)


@pytest.mark.parametrize(("deviation", "fails"), [(0.9e-5, False), (1.1e-5, True)])
def test_replay_is_exact_or_the_run_ends(deviation: float, fails: bool) -> None:
    tally = Tally()
    tally.extend({"ratio/max_dev": torch.tensor([0.0, deviation])})
    if fails:
        with pytest.raises(TrainingError, match="tenth of the clip range"):
            require_replay(tally, 1e-5)
    else:
        require_replay(tally, 1e-5)
        assert tally.means()["ratio/first_max_dev"] == pytest.approx(deviation)


def test_an_algorithm_without_ratios_has_nothing_to_replay() -> None:
    require_replay(Tally(), None)
