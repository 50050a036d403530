from collections import Counter

import numpy as np
import pytest

from rlfactory.prompts.ops.scenes import (
    CATEGORIES,
    COLORS,
    SHAPES,
    Placed,
    arrange,
    background,
    render,
    sample_scene,
)
from rlfactory.reward.ops.shape_detector import UNKNOWN, components, detect, lab_colors, to_lab


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


GREY = (225, 225, 225)


def found(*objects, shade=GREY):
    return detect(render(objects, shade)[None])[0]


def drawn(count, seed):
    rng = np.random.default_rng(seed)
    placed = [arrange(sample_scene(CATEGORIES[i % 6], rng), rng) for i in range(count)]
    return placed, np.stack([render(objects, background(rng)) for objects in placed])


@pytest.mark.parametrize("color", COLORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_in_every_color_and_size_on_pale_and_dark(shape, color):
    for radius, shade in ((6.5, 200), (9.0, 225), (15.0, 250)):
        (item,) = found(Placed(shape, color, 30.3, 27.6, radius), shade=(shade,) * 3)
        assert (item.name, item.color) == (shape, color)
        expected = np.array([30.3 - radius, 27.6 - radius, 30.3 + radius, 27.6 + radius])
        np.testing.assert_allclose(item.box, expected, atol=1.2)


def test_scenes_are_read_exactly():
    placed, images = drawn(300, seed=3)
    for objects, items in zip(placed, detect(images), strict=True):
        assert Counter((o.shape, o.color) for o in objects) == Counter(
            (i.name, i.color) for i in items
        )


def test_a_picture_does_not_depend_on_its_batch():
    _, images = drawn(12, seed=4)
    assert detect(images) == [detect(image[None])[0] for image in images]


def test_nothing_is_found_where_nothing_is():
    assert detect(np.full((3, 64, 64, 3), 225, np.uint8)) == [[], [], []]
    assert detect(np.empty((0, 64, 64, 3), np.uint8)) == []


def test_touching_objects_of_two_colors_are_two():
    pair = Placed("square", "red", 20, 30, 9), Placed("circle", "pink", 38.5, 30, 9)
    items = found(*pair)
    assert {(i.name, i.color) for i in items} == {("square", "red"), ("circle", "pink")}


def test_touching_objects_of_one_color_are_a_blob():
    pair = Placed("square", "red", 20, 30, 9), Placed("circle", "red", 38, 30, 9)
    assert [i.name for i in found(*pair)] == [UNKNOWN]


def test_a_flaw_of_another_color_is_passed_over():
    image = render([Placed("square", "blue", 30, 30, 10)], GREY).copy()
    image[27:33, 27:33] = COLORS["orange"]
    (item,) = detect(image[None])[0]
    assert (item.name, item.color) == ("square", "blue")


def test_an_unrecognised_blob_is_unknown_and_a_speck_is_nothing():
    image = np.full((64, 64, 3), 225, np.uint8)
    image[10:16, 5:45] = COLORS["green"]
    image[50:53, 50:53] = COLORS["red"]
    (item,) = detect(image[None])[0]
    assert (item.name, item.color) == (UNKNOWN, "green")


def test_a_ring_and_a_coloured_background_are_no_shapes():
    image = render([Placed("circle", "blue", 30, 30, 14)], GREY).copy()
    y, x = np.mgrid[:64, :64]
    image[(x - 29.5) ** 2 + (y - 29.5) ** 2 < 100] = 225
    assert [i.name for i in detect(image[None])[0]] == [UNKNOWN]
    assert [i.name for i in detect(np.full((1, 64, 64, 3), (215, 35, 40), np.uint8))[0]] == [
        UNKNOWN
    ]


def test_a_color_outside_the_palette_is_none():
    image = np.full((64, 64, 3), 225, np.uint8)
    image[20:40, 20:40] = (0, 255, 255)
    (item,) = detect(image[None])[0]
    assert (item.name, item.color) == ("square", None)


def test_the_table_is_close_to_the_formula():
    rgb = np.random.default_rng(0).integers(0, 256, (1000, 3), np.uint8)
    distance = np.linalg.norm(lab_colors(rgb) - to_lab(rgb / 255), axis=1)
    assert np.median(distance) < 1.5
    assert distance.max() < 6


def test_a_faint_bridge_does_not_join_two_objects():
    image = render([Placed("square", "red", 16, 30, 8), Placed("circle", "red", 46, 30, 8)], GREY)
    image = image.copy()
    image[28:32, 23:39] = 0.6 * np.array(GREY) + 0.4 * np.array(COLORS["red"])
    assert sorted(i.name for i in detect(image[None])[0]) == ["circle", "square"]


def test_shapes_upside_down_or_half_missing_are_no_shapes():
    triangle = render([Placed("triangle", "blue", 30, 30, 12)], GREY)
    circle = render([Placed("circle", "blue", 30, 30, 14)], GREY).copy()
    circle[30:] = 225
    for image in (triangle[::-1], circle):
        assert [i.name for i in detect(image[None])[0]] == [UNKNOWN]


# CIELAB of sRGB under D65, B. Lindbloom's calculator, rounded to 0.1
PUBLISHED = {
    (255, 255, 255): (100.0, 0.0, 0.0),
    (0, 0, 0): (0.0, 0.0, 0.0),
    (255, 0, 0): (53.2, 80.1, 67.2),
    (0, 255, 0): (87.7, -86.2, 83.2),
    (0, 0, 255): (32.3, 79.2, -107.9),
}


@pytest.mark.parametrize(("rgb", "lab"), PUBLISHED.items())
def test_cielab_of_primaries(rgb: tuple[int, int, int], lab: tuple[float, float, float]) -> None:
    np.testing.assert_allclose(to_lab(np.array([rgb]) / 255)[0], lab, atol=0.1)


def test_the_table_is_within_two_levels() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (500, 3), dtype=np.uint8)
    exact = to_lab(rgb / 255)
    nudged = [to_lab(np.clip(rgb + 2.0 * sign, 0, 255) / 255) for sign in (-1, 1)]
    room = np.abs(np.stack(nudged) - exact).max(0).max(1) + 1.5
    assert (np.abs(lab_colors(rgb) - exact).max(1) <= 2 * room).all()
