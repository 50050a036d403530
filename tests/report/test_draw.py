"""Curves of rows: lines or dots, their intervals, the paper's values, and plots of a page."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from PIL import Image

from rlfactory.report import draw
from rlfactory.report.draw import FEWEST, Plot, by_metric, draw_figure, draw_panel, plots, short
from rlfactory.report.page import page, rows_with_curves
from rlfactory.report.plot import COLORS, saved_figure
from rlfactory.report.report import Curve, Report


def paths(folder: Path) -> list[Path]:
    return [folder / "curves.png", folder / "curves.svg"]


METRICS = ("eval/x/mean", "reward/x/mean")


def curve(row: str, metric: str = "a", paper: float | None = None, points: int = FEWEST) -> Curve:
    """A line from 0.1 to 0.5 with an interval of 0.1 to both sides."""
    x = [i / (points - 1) for i in range(points)]
    mean, low, high = ([end + 0.4 * at for at in x] for end in (0.1, 0.0, 0.2))
    return Curve(row, metric, x, mean, low, high, metric, paper)


def drawn_svg(panel: list[Curve], rows: list[str]) -> tuple[str, tuple[float, float, float, float]]:
    (plot,) = plots(panel, rows)
    return plot.svg, plot.data["limits"]


def test_a_panel_a_metric_with_the_papers_value_dashed(tmp_path: Path) -> None:
    png, svg = draw_figure(
        [curve("one", paper=0.7), curve("two"), curve("one", "b")], *paths(tmp_path)
    )
    with Image.open(png) as image:
        assert image.width > 600
    text = svg.read_text()
    assert text.count('<g id="axes_') == 2
    assert all(f">{word}</text>" in text for word in ("one", "two", "a", "b"))
    assert text.count("stroke-dasharray") == 1


def test_the_same_numbers_make_the_same_file(tmp_path: Path) -> None:
    files = []
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        files.append(draw_figure([curve("one")], *paths(tmp_path / name))[1].read_bytes())
    assert files[0] == files[1]


def test_names_may_hold_any_letter_and_rows_may_be_many(tmp_path: Path) -> None:
    rows = [f"a_{n} $x$ & <b>" for n in range(len(COLORS) + 2)]
    _, svg = draw_figure([curve(row) for row in rows], *paths(tmp_path))
    assert ">a_11 $x$ &amp; &lt;b&gt;</text>" in svg.read_text()


def test_no_curves_are_no_figure(tmp_path: Path) -> None:
    assert draw_figure([], *paths(tmp_path)) == []
    assert [*tmp_path.iterdir()] == []


def test_curves_of_one_label_share_a_panel() -> None:
    found = by_metric([curve("one"), curve("one", "b"), curve("two")])
    assert [[c.row for c in panel] for panel in found] == [["one", "two"], ["one"]]


def test_a_long_name_leaves_room() -> None:
    assert len(short("x" * 200)) == 80


def test_a_legend_of_long_names_stays_within_the_figure(tmp_path: Path) -> None:
    rows = [f"{n}: " + "long name " * 7 for n in range(3)]
    png, _ = draw_figure([curve(row, metric) for row in rows for metric in "abc"], *paths(tmp_path))
    with Image.open(png) as image:
        right = image.convert("L").crop((image.width - 3, 0, image.width, image.height))
    assert right.getextrema() == (255, 255)


def test_the_papers_values_of_many_rows_would_be_a_grid(tmp_path: Path) -> None:
    for count, is_shown in ((2, True), (9, False)):
        rows = [curve(f"row {i}", paper=0.9) for i in range(count)]
        _, svg = draw_figure(rows, *paths(tmp_path))
        assert (">0.8<" in svg.read_text()) == is_shown


def test_a_panel_for_a_page_has_css_colours_and_rows_to_select(tmp_path: Path) -> None:
    panel = [curve("one", paper=0.7), curve("two")]
    svg, (x0, x1, y0, y1) = drawn_svg(panel, ["two", "one"])
    assert svg.startswith("<svg")
    assert svg.endswith("</svg>")
    assert (x0, x1) == (0, 1)
    assert y0 < 0
    assert y1 > 0.7
    assert svg.count('data-row="1"') == 3  # a line, its band and the paper's value
    assert svg.count('data-row="0"') == 2
    assert "var(--c0)" in svg
    assert not re.findall("#[0-9a-f]{6}", svg)
    assert all(name.startswith("p0-") for name in re.findall(r' id="([^"]*)"', svg))
    assert "M 50 " in svg
    assert "L 388 " in svg
    assert "one<" not in svg


def test_one_point_is_a_dot() -> None:
    one = Curve("one", "a", [3.0], [0.5], [0.4], [0.6])
    svg, (x0, x1, _, _) = drawn_svg([one], ["one"])
    assert x0 < 2
    assert x1 > 4
    assert svg.count("<use") == 3  # the dot, and the ends of its error bar


def test_evaluations_are_marked_and_training_is_not() -> None:
    dots = [drawn_svg([curve("a", metric)], ["a"])[0].count("<use") for metric in METRICS]
    assert dots[0] == dots[1] + FEWEST


def drawn(panel: list[Curve], rows: list[str]) -> list[tuple[bool, bool, list[float]]]:
    """Of each line of a panel: whether it is joined, whether it has markers, and its x."""
    with saved_figure((4, 3)) as figure:
        axes = figure.subplots()
        draw_panel(axes, panel, rows)
        lines = [line for line in axes.get_lines() if line.get_marker() not in ("_", "|")]
        return [
            (line.get_linestyle() != "None", line.get_marker() == "o", [*line.get_xdata()])
            for line in lines
        ]


def test_a_few_measurements_are_dots_with_error_bars_and_no_line() -> None:
    few, many = curve("one", points=FEWEST - 1), curve("one", "eval/x/mean")
    assert drawn([few], ["one"]) == [(False, True, few.x)]
    assert drawn([many], ["one"]) == [(True, True, many.x)]
    svg, (x0, x1, _, _) = drawn_svg([few], ["one"])
    assert svg.count("<use") == 3 * len(few.x)  # with the two ends of each bar
    assert x0 < 0
    assert x1 > 1


def test_dots_of_one_iteration_stand_beside_each_other() -> None:
    rows = ["one", "two", "three"]
    xs = [x for _, _, x in drawn([curve(row, points=3) for row in rows], rows)]
    first = [x[0] for x in xs]
    assert first[1] == 0
    assert first[0] == -first[2] < 0
    assert first[2] < 0.25  # nearer to its own iteration than to the next one at 0.5
    before, _ = next(x for _, _, x in drawn([curve(row, points=2) for row in rows], rows))
    assert -0.03 < before < 0  # of two iterations too: no dot seems to be of another one
    lines = drawn([curve("one"), curve("two")], ["one", "two"])
    assert lines[0][2] == lines[1][2] == curve("one").x


def test_intervals_that_are_not_drawn_do_not_widen_the_axis() -> None:
    rows = [str(i) for i in range(9)]
    for names, is_wide in ((rows[:8], True), (rows, False)):
        _, (_, _, low, high) = drawn_svg([curve(row) for row in names], names)
        assert (low < 0) == (high > 0.6) == is_wide


def test_an_error_bar_is_drawn_whole_and_a_wide_band_is_cut_off() -> None:
    limits = []
    for points in (2, FEWEST):
        wide = replace(curve("one", points=points), low=[-3.0] * points, high=[5.0] * points)
        with saved_figure((3, 2)) as figure:
            axes = figure.subplots()
            draw_panel(axes, [wide], ["one"])
            limits.append(axes.get_ylim())
    (bottom, top), (band_bottom, band_top) = limits
    assert bottom < -3.0
    assert top > 5.0
    assert band_bottom > -3.0
    assert band_top < 5.0


def test_a_band_of_samples_is_drawn_whole() -> None:
    """It filled the panel of a run's reward: its ends, 0 and 1, lay outside."""
    own = curve("one")
    wide = replace(own, low=[-3.0] * FEWEST, high=[5.0] * FEWEST, points=own.mean)
    with saved_figure((3, 2)) as figure:
        axes = figure.subplots()
        draw_panel(axes, [wide], ["one"])
        bottom, top = axes.get_ylim()
    assert bottom < -3.0
    assert top > 5.0


def page_plots(report: Report) -> list[Plot]:
    digits = {column.label: column.digits + 1 for column in report.columns}
    return plots(report.curves, rows_with_curves(report), digits)


def single_curve(paper: float | None = None) -> Curve:
    x = [0.0, 1.0, 2.0]
    return Curve("V-GRPO", "m", x, x, [v - 1 for v in x], [v + 1 for v in x], "M", paper)


def test_a_plot_for_each_metric_and_a_colour_for_each_row(report):
    first, second = page_plots(report)
    assert (first.label, second.label, second.data["digits"]) == ("GenEval", "OCR", 3)
    assert [line["row"] for line in first.data["lines"]] == [0, 1]
    assert [line["row"] for line in second.data["lines"]] == [0, 1, 2]
    assert rows_with_curves(report) == [row.name for row in report.rows]


def test_rows_without_a_curve_have_no_colour(report):
    one = replace(report, curves=report.curves[1:2])
    assert rows_with_curves(one) == ["Flow-GRPO, all steps"]
    assert page_plots(one)[0].data["lines"][0]["row"] == 0


def test_a_curve_without_points_is_left_out(report):
    empty = replace(report.curves[0], x=[], mean=[], low=[], high=[])
    assert page_plots(replace(report, curves=[empty])) == []


def test_a_claim_that_is_far_off_is_named_beside_the_plot(report):
    assert page_plots(report)[1].far[0] == "Flow-GRPO, all steps 9.00"
    assert "Paper, outside this plot: Flow-GRPO, all steps 9.00" in page(report)


@pytest.mark.parametrize(("paper", "count"), [(2.5, 0), (90.0, 1), (None, 0)])
def test_a_near_claim_is_drawn_and_a_far_one_is_not(report, paper, count):
    (plot,) = page_plots(replace(report, curves=[single_curve(paper)]))
    assert len(plot.far) == count
    assert plot.svg.count("stroke-dasharray") == (paper == 2.5)


def test_what_is_not_finite_is_left_out(report):
    low = [1.0, math.nan, -math.inf]
    gap = Curve("V-GRPO", "m", [0.0, 1, 2], [1.0, math.nan, 2], low, [1.0, 1, 2], "M", math.nan)
    (plot,) = page_plots(replace(report, curves=[gap]))
    (line,) = plot.data["lines"]
    assert line["x"] == [0.0, 2]
    assert line["low"] == [1.0, None]
    assert not any(word in plot.svg for word in ("nan", "inf"))


def test_a_plot_is_described_in_words(report):
    assert page_plots(replace(report, curves=[single_curve()]))[0].spoken == (
        "M over iterations: V-GRPO from 0.0000 to 2.0000."
    )


def test_many_ticks_are_thinned() -> None:
    for ticks, shown in (([0, 5, 10], [0, 5, 10]), ([*range(101)], [*range(0, 101, 13)])):
        with saved_figure((4, 3)) as figure:
            axes = figure.subplots()
            axes.plot([0, 100], [0, 1])
            draw._mark_iterations(axes, ticks)
            assert axes.get_xticks().tolist() == shown
            assert axes.get_xlim()[0] > -6


def test_a_long_run_has_no_element_for_each_of_its_points() -> None:
    long = curve("one", points=5000)
    svg, limits = drawn_svg([replace(long, points=[*long.mean[:-1], 9.0], joined=True)], ["one"])
    assert 1000 < svg.count("<use ") <= 2000
    assert limits[3] > 9, "the axes hold those that are not drawn"


def test_smoothed_points_stay_and_a_line_can_be_refused() -> None:
    smoothed = replace(curve("one"), points=[0.5] * FEWEST, joined=True)
    assert [joined for joined, _, _ in drawn([smoothed], ["one"])] == [False, True]
    assert drawn([replace(curve("one"), joined=False)], ["one"])[0][0] is False


def test_a_legend_says_what_bands_are(tmp_path: Path, figures: list[Figure]) -> None:
    draw_figure([curve("one")], tmp_path / "a.png", title="my run: $nft", band="80 % of samples")
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "80 % of samples"]
    assert figures[0].get_suptitle() == "my run: \\$nft"
