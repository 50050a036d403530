import math

import pytest
import torch

from rlfactory.run.diversity import pairwise_distance

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


def test_without_pairs_it_is_unknown() -> None:
    assert math.isnan(pairwise_distance(torch.stack([BLACK, WHITE]), torch.arange(2)))
