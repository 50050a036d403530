import math

import pytest
import torch

from rlfactory.train.metrics import MetricAccumulator, check_initial_ratio, pairwise_distance
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
