"""What becomes of rewards between the reward and the loss."""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from rlfactory.reward.ops.python_function import call_with_timeout
from rlfactory.rollout import Rollout
from rlfactory.train.scoring.scores import (
    REWARD_ERRORS,
    drop_unscored,
    require_scored,
    reward_metrics,
    zero_variance_groups,
)
from rlfactory.utils.errors import TrainingError

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
    assert metrics["reward/main/p10"] == pytest.approx(0.4)
    assert metrics["reward/main/p90"] == pytest.approx(3.6)
    assert metrics["reward/main/failed"] == 0.25
    assert metrics["reward/other/failed"] == 0
    assert metrics["reward/other/group_std"] == 0


def test_failed_samples_leave_the_rollout(rollout: Rollout) -> None:
    kept = drop_unscored(rollout, ["main"], max_failed=0.25)
    assert kept.index.tolist() == [0, 1, 3]
    assert kept.prompts == ["prompt 0", "prompt 1", "prompt 3"]
    assert kept.transitions is not None
    assert len(kept.transitions.log_prob) == 3


def test_more_failures_than_allowed(rollout: Rollout) -> None:
    with pytest.raises(TrainingError, match=r"25\.0%.*main.*max_failed=20\.0%"):
        drop_unscored(rollout, ["main"], max_failed=0.2)


def test_every_score_that_trains_is_needed(rollout: Rollout) -> None:
    rewards = {**rollout.rewards, "other": torch.tensor([1.0, NAN, 1.0, 1.0])}
    both = replace(rollout, rewards=rewards)
    assert drop_unscored(both, ["main", "other"], max_failed=0.5).index.tolist() == [0, 3]
    assert drop_unscored(both, ["other"], max_failed=0.5).index.tolist() == [0, 2, 3]
    with pytest.raises(TrainingError, match=r"50\.0%.*main, other"):
        drop_unscored(both, ["main", "other"], max_failed=0.4)


def test_a_score_that_is_not_there_ends_the_run_with_those_that_are(rollout: Rollout) -> None:
    with pytest.raises(TrainingError, match="names beauty, .* it gives main, other"):
        drop_unscored(rollout, ["main", "beauty"], max_failed=1.0)


def test_groups_without_variance_are_counted(rollout: Rollout) -> None:
    assert zero_variance_groups(rollout, ["other"]) == {"advantage/zero_groups": 1.0}
    varied = replace(rollout, rewards={"a": torch.tensor([0.1, 0.2, 0.3, 0.3])})
    assert zero_variance_groups(varied, ["a"]) == {"advantage/zero_groups": 0.5}
    alone = replace(varied, groups=torch.tensor([0, 0, 1, 2]))
    assert zero_variance_groups(alone, ["a"]) == {"advantage/zero_groups": 0.0}, (
        "one sample is no group"
    )
    assert zero_variance_groups(replace(varied, groups=torch.arange(4)), ["a"]) == {}
    steady = replace(varied, rewards={"a": varied.rewards["a"], "b": torch.ones(4)})
    assert zero_variance_groups(steady, ["a", "b"]) == {"advantage/zero_groups": 0.5}


def test_without_any_score_there_are_no_quantiles(rollout: Rollout) -> None:
    failed = replace(rollout, rewards={"main": torch.full((4,), NAN)})
    metrics = reward_metrics(failed)
    assert metrics["reward/main/failed"] == 1
    assert "reward/main/p10" not in metrics


NONE = {"mine": torch.tensor([torch.nan, torch.nan])}


def fail() -> None:
    raise TypeError("mine() takes 1\n positional argument")


def test_the_first_exception_is_the_cause() -> None:
    REWARD_ERRORS.take()
    call_with_timeout(fail, 5.0, "mine", 2)
    logging.getLogger("rlfactory.reward.other").error("and then %d more", 3)
    with pytest.raises(TrainingError, match="from reward mine, more than") as raised:
        require_scored(NONE, ["mine"], 0.05)
    assert isinstance(raised.value.__cause__, TypeError)


def test_an_error_of_an_earlier_batch_is_not() -> None:
    call_with_timeout(fail, 5.0, "mine", 2)
    require_scored({"mine": torch.zeros(2)}, ["mine"], 0.05)
    with pytest.raises(TrainingError, match="from reward mine, more than"):
        require_scored(NONE, ["mine"], 0.05)


def test_a_message_without_an_exception() -> None:
    REWARD_ERRORS.take()
    logging.getLogger("rlfactory.reward.remote").error("no answer from %s", "there")
    logging.getLogger("rlfactory.train").error("something else")
    assert REWARD_ERRORS.take() == ("no answer from there", None)
    assert REWARD_ERRORS.take() == ("", None)
    logging.getLogger("rlfactory.reward.remote").error("no answer from %s", "there")
    with pytest.raises(TrainingError, match=r"mine \(no answer from there\), more than"):
        require_scored(NONE, ["mine"], 0.05)
