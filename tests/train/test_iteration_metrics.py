import logging
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from rlfactory.reward.ops.python_function import call_with_timeout
from rlfactory.rollout import Rollout
from rlfactory.train.iteration_metrics import (
    REWARD_ERRORS,
    MetricAccumulator,
    check_initial_ratio,
    drop_unscored,
    pairwise_distance,
    require_scored,
    reward_metrics,
    zero_variance_groups,
)
from rlfactory.utils.errors import TrainingError

BLACK, WHITE = (torch.full((3, 4, 4), value, dtype=torch.uint8) for value in (0, 255))


def test_equal_images_have_none_and_opposite_ones_all() -> None:
    groups = torch.zeros(2, dtype=torch.int64)
    assert pairwise_distance(torch.stack([BLACK, BLACK]), groups) == 0
    assert pairwise_distance(torch.stack([BLACK, WHITE]), groups) == pytest.approx(1)


def test_only_pairs_of_a_group_count_each_the_same() -> None:
    images = torch.stack([BLACK, WHITE, BLACK, WHITE, WHITE])
    # group 7 has the pairs BB, BW, BW; group 3 has WW
    assert pairwise_distance(images, torch.tensor([7, 3, 7, 3, 7])) == pytest.approx(2 / 4)


def test_it_is_the_mean_root_mean_square_difference() -> None:
    images = torch.randint(0, 256, (6, 3, 4, 4), dtype=torch.uint8)
    x = images.double() / 255
    pairs = [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)]
    expected = sum((x[i] - x[j]).pow(2).mean().sqrt().item() for i, j in pairs) / 6
    assert pairwise_distance(images, torch.arange(6) // 3) == pytest.approx(expected, rel=1e-5)


def test_a_slight_difference_is_not_lost_among_many_images() -> None:
    images = WHITE.repeat(40, 1, 1, 1)
    images[0, 0, 0, 0] = 254
    expected = 39 / (40 * 39 / 2) / 255 / 48**0.5
    found = pairwise_distance(images, torch.zeros(40, dtype=torch.int64))
    assert found == pytest.approx(expected, rel=1e-3)


def test_large_images_are_compared_as_thumbnails() -> None:
    torch.manual_seed(0)
    small = torch.randint(0, 256, (6, 3, 64, 64), dtype=torch.uint8)
    large = small.repeat_interleave(4, 2).repeat_interleave(4, 3)
    groups = torch.tensor([1, 0, 1, 0, 1, 0])
    expected = pairwise_distance(small, groups)
    assert pairwise_distance(large, groups) == pytest.approx(expected, rel=1e-6)
    # what differs within a cell alone does not count
    checkers = torch.tensor([[0, 255], [255, 0]], dtype=torch.uint8).repeat(3, 64, 64)
    inverse = 255 - checkers
    assert pairwise_distance(torch.stack([checkers, inverse]), torch.zeros(2).long()) == 0


def test_images_up_to_a_thumbnail_are_compared_as_they_are() -> None:
    images = torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8)
    groups = torch.tensor([1, 0, 1, 0])
    pixels = images.flatten(1).float() / 255
    pairs = torch.cat([torch.pdist(pixels[groups == group]) for group in (0, 1)])
    assert pairwise_distance(images, groups) == float(pairs.mean()) / (3 * 64 * 64) ** 0.5


def test_without_pairs_it_is_unknown() -> None:
    assert math.isnan(pairwise_distance(torch.stack([BLACK, WHITE]), torch.arange(2)))


def test_every_element_counts_once_however_it_came() -> None:
    metrics = MetricAccumulator()
    metrics.extend({"loss/policy": torch.tensor([1.0, 2.0, 3.0])})
    metrics.extend({"loss/policy": torch.tensor([[10.0]])})
    metrics.add("loss/policy", 4.0)
    assert metrics.means() == {"loss/policy": pytest.approx(20 / 5)}


def test_scalars_and_other_types_are_taken() -> None:
    metrics = MetricAccumulator()
    metrics.extend({"a": torch.tensor(2.0), "b": torch.tensor([1.0], dtype=torch.double)})
    metrics.extend({"b": torch.tensor([2.0])})
    assert metrics.means() == {"a": 2.0, "b": 1.5}


def test_of_a_largest_deviation_the_largest_is_kept() -> None:
    metrics = MetricAccumulator()
    metrics.extend({"ratio/max_dev": torch.tensor([0.1, 0.7])})
    metrics.extend({"ratio/max_dev": torch.tensor([0.2])})
    assert metrics.largest("ratio/max_dev") == pytest.approx(0.7)
    assert metrics.means()["ratio/max_dev"] == pytest.approx(0.7)


def test_an_empty_tally_has_no_means() -> None:
    assert MetricAccumulator().means() == {}


def test_the_latest_of_a_family() -> None:
    metrics = MetricAccumulator()
    for value in (1.0, 2.0):
        metrics.extend({"kl/a": torch.tensor([value]), "loss/b": torch.tensor([value])})
    metrics.extend({"kl/c": torch.tensor([3.0, 5.0])})
    assert metrics.latest_of("kl/") == {"kl/a": 2.0, "kl/c": 4.0}


@pytest.mark.parametrize(("deviation", "fails"), [(0.9e-5, False), (1.1e-5, True)])
def test_replay_is_exact_or_the_run_ends(deviation: float, fails: bool) -> None:
    metrics = MetricAccumulator()
    metrics.extend({"ratio/max_dev": torch.tensor([0.0, deviation])})
    if fails:
        with pytest.raises(TrainingError, match="tenth of the clip range"):
            check_initial_ratio(metrics, 1e-5)
    else:
        check_initial_ratio(metrics, 1e-5)
        assert metrics.means()["ratio/first_max_dev"] == pytest.approx(deviation)


def test_an_algorithm_whose_loss_forgets_its_ratios_is_told() -> None:
    with pytest.raises(TrainingError, match="returned no metric ratio/max_dev"):
        check_initial_ratio(MetricAccumulator(), 1e-5)


def test_an_algorithm_without_ratios_has_nothing_to_replay() -> None:
    check_initial_ratio(MetricAccumulator(), None)


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
