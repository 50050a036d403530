"""Connected components: what is joined, what is not, and how it is measured."""

import numpy as np

from rlfactory.reward.components import components


def test_neighbours_of_one_colour_are_one_component_and_diagonals_are_not() -> None:
    color = np.zeros((1, 4, 5), np.uint8)
    color[0, 0, :3] = color[0, 1, 2] = 1
    color[0, 2, 3] = 1
    found = components(color)
    assert sorted(found.area.tolist()) == [1, 4]
    assert found.box[found.area.argmax()].tolist() == [0, 0, 3, 2]


def test_colours_and_pictures_are_never_joined() -> None:
    color = np.ones((2, 3, 4), np.uint8)
    color[:, :, 2:] = 2
    found = components(color)
    assert found.image.tolist() == [0, 0, 1, 1]
    assert found.area.tolist() == [6, 6, 6, 6]


def test_an_empty_batch_has_none() -> None:
    assert len(components(np.zeros((3, 4, 4), np.uint8)).area) == 0
