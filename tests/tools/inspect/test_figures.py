"""The figures of a network as large as GPT-2's smallest, with tokens as long as words are."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from rlfactory.tools.inspect.analysis import Survey
from rlfactory.tools.inspect.figures import (
    draw_attribution,
    draw_direction,
    draw_lens,
)

from .conftest import Words


@pytest.mark.slow
def test_nothing_overlaps_or_leaves_the_page(
    survey: Survey, figures: list[Figure], tmp_path: Path
) -> None:
    draw_lens(survey, Words(), tmp_path / "lens.png")
    draw_attribution(survey, Words(), tmp_path / "attribution.png")
    draw_direction(survey, tmp_path / "direction.png")
    assert len(figures) == 3
    for figure in figures:
        page = figure.bbox
        labels = [axes.get_tightbbox() for axes in figure.axes]
        for box in labels:
            assert box is not None
            assert page.x0 <= box.x0 + 1
            assert box.x1 <= page.x1 + 1
        boxes = [axes.get_window_extent() for axes in figure.axes]
        for i, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[i + 1 :])


@pytest.mark.slow
def test_equal_colours_are_equal_values_in_all_panels(
    survey: Survey, figures: list[Figure], tmp_path: Path
) -> None:
    assert survey.direction is not None
    view = replace(survey.direction, shift=3 * survey.direction.shift)
    draw_direction(replace(survey, direction=view), tmp_path / "direction.png")
    images = [axes.images[0] for axes in figures[0].axes if axes.images]
    limits = [image.get_clim() for image in images[:2]]
    assert limits[0] == limits[1]
    assert max(abs(image.get_array()).max() for image in images[:2]) <= limits[0][1] * 1.001


def test_the_scale_of_the_lens_reads_as_its_cells(
    survey: Survey, figures: list[Figure], tmp_path: Path
) -> None:
    draw_lens(survey, Words(), tmp_path / "lens.png", "my run; good is a high score")
    assert "my run" in figures[0].get_suptitle()
    bar = figures[0].axes[-1]
    assert all(label.get_text().startswith("×") for label in bar.get_yticklabels())
    assert "␣wonderful" in [label.get_text() for label in figures[0].axes[0].get_yticklabels()]
