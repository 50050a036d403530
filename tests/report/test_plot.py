import pytest

from rlfactory.report.plot import panel_axes, panel_rows, saved_figure, svg_for_html


@pytest.mark.parametrize(
    ("count", "rows"),
    [(1, [1]), (3, [3]), (4, [2, 2]), (5, [3, 2]), (7, [3, 2, 2]), (9, [3, 3, 3])],
)
def test_rows_of_panels_are_even(count: int, rows: list[int]) -> None:
    assert panel_rows(count) == rows


def test_a_row_has_no_hole() -> None:
    with saved_figure((9, 6)) as figure:
        for axes in panel_axes(figure, 5):
            axes.plot([0, 1], [0, 1])
        figure.draw_without_rendering()
        boxes = [axes.get_position() for axes in figure.axes]
    right = max(box.x1 for box in boxes)
    assert boxes[2].x1 == pytest.approx(right, abs=0.01)
    assert boxes[4].x1 == pytest.approx(right, abs=0.01)
    assert boxes[3].width > 1.3 * boxes[0].width


def test_svg_for_a_page_has_the_pages_colors_and_its_own_ids() -> None:
    with saved_figure((3, 2)) as figure:
        (axes,) = panel_axes(figure, 1)
        axes.plot([0, 1], [0, 1], color="#3465a4", label="<b>")
        axes.legend()
        svg = svg_for_html(figure, "p7")
    assert svg.startswith("<svg")
    assert "#3465a4" not in svg
    assert "var(--c0)" in svg
    assert 'id="p7-' in svg
    assert "<b>" not in svg
    assert "<style" not in svg
