import re
from pathlib import Path

from PIL import Image

from rlfactory.report.plot import by_metric, draw_report, panel_svg, short
from rlfactory.report.report import Curve
from rlfactory.run.figures.figure import COLORS

METRICS = ("eval/x/mean", "reward/x/mean")


def curve(row: str, metric: str = "a", paper: float | None = None) -> Curve:
    return Curve(row, metric, [0, 1], [0.1, 0.5], [0.0, 0.4], [0.2, 0.6], metric, paper)


def test_a_panel_a_metric_with_the_papers_value_dashed(tmp_path: Path) -> None:
    png, svg = draw_report([curve("one", paper=0.7), curve("two"), curve("one", "b")], tmp_path)
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
        files.append(draw_report([curve("one")], tmp_path / name)[1].read_bytes())
    assert files[0] == files[1]


def test_names_may_hold_any_letter_and_rows_may_be_many(tmp_path: Path) -> None:
    rows = [f"a_{n} $x$ & <b>" for n in range(len(COLORS) + 2)]
    _, svg = draw_report([curve(row) for row in rows], tmp_path)
    assert ">a_11 $x$ &amp; &lt;b&gt;</text>" in svg.read_text()


def test_no_curves_are_no_figure(tmp_path: Path) -> None:
    assert draw_report([], tmp_path) == []
    assert [*tmp_path.iterdir()] == []


def test_curves_of_one_label_share_a_panel() -> None:
    found = by_metric([curve("one"), curve("one", "b"), curve("two")])
    assert [[c.row for c in panel] for panel in found] == [["one", "two"], ["one"]]


def test_a_long_name_leaves_room() -> None:
    assert len(short("x" * 200)) == 80


def test_a_legend_of_long_names_stays_within_the_figure(tmp_path: Path) -> None:
    rows = [f"{n}: " + "long name " * 7 for n in range(3)]
    png, _ = draw_report([curve(row, metric) for row in rows for metric in "abc"], tmp_path)
    with Image.open(png) as image:
        right = image.convert("L").crop((image.width - 3, 0, image.width, image.height))
    assert right.getextrema() == (255, 255)


def test_the_papers_values_of_many_rows_would_be_a_grid(tmp_path: Path) -> None:
    for count, is_shown in ((2, True), (9, False)):
        rows = [curve(f"row {i}", paper=0.9) for i in range(count)]
        _, svg = draw_report(rows, tmp_path)
        assert (">0.8<" in svg.read_text()) == is_shown


def test_a_panel_for_a_page_has_css_colours_and_rows_to_select(tmp_path: Path) -> None:
    panel = [curve("one", paper=0.7), curve("two")]
    svg, (x0, x1, y0, y1) = panel_svg(panel, ["two", "one"], "p3")
    assert svg.startswith("<svg")
    assert svg.endswith("</svg>")
    assert (x0, x1) == (0, 1)
    assert y0 < 0
    assert y1 > 0.7
    assert svg.count('data-row="1"') == 3  # a line, its band and the paper's value
    assert svg.count('data-row="0"') == 2
    assert "var(--c0)" in svg
    assert not re.findall("#[0-9a-f]{6}", svg)
    assert all(name.startswith("p3-") for name in re.findall(r' id="([^"]*)"', svg))
    assert "M 50 " in svg
    assert "L 388 " in svg
    assert "one<" not in svg


def test_one_point_is_a_dot() -> None:
    one = Curve("one", "a", [3.0], [0.5], [0.4], [0.6])
    svg, (x0, x1, _, _) = panel_svg([one], ["one"], "p0")
    assert (x0, x1) == (2, 4)
    assert svg.count("<use") == 2  # the dot, and the band that has no width


def test_evaluations_are_marked_and_training_is_not() -> None:
    dots = [panel_svg([curve("a", metric)], ["a"], "p")[0].count("<use") for metric in METRICS]
    assert dots[0] == dots[1] + 2
