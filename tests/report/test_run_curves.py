import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from rlfactory.report.run_curves import (
    RunCurves,
    draw_curves,
    histogram,
    moving_average,
    run_plots,
    smoothing,
)
from rlfactory.run.scores import Scores

TRAINING: dict[str, float | None] = {
    "reward/shapes/mean": 0.7,
    "reward/shapes/group_std": 0.1,
    "reward/strict/mean": 0.5,
    "loss/policy": 0.3,
    "grad/norm": 1.0,
    "time/sample": 2.0,
    "time/score": 0.2,
    "time/learn": 1.5,
}


def run(length: int, **more: float) -> list[dict[str, float | None]]:
    """Iterations 1 to `length`, each metric rising a little."""
    return [
        {"iteration": i, "time": 4.0 * i, **{k: v + 0.01 * i for k, v in (TRAINING | more).items()}}
        for i in range(1, length + 1)
    ]


def evaluated(at: int, mean: float) -> dict[str, float | None]:
    return {"iteration": at, "eval/shapes/mean": mean}


def titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


@pytest.mark.slow
def test_only_what_was_measured_gets_a_panel(tmp_path: Path, figures: list[Figure]) -> None:
    assert draw_curves(RunCurves(run(5)), tmp_path / "a.png", "my run: $nft")
    assert titles(figures[0]) == ["Reward: shapes", "strict", "Gradient norm", "Time per iteration"]
    assert figures[0].get_suptitle() == "my run: \\$nft"
    more = run(5, **{"kl/old": 0.1, "ratio/clip_fraction": 0.2, "diversity/pairwise": 0.3})
    draw_curves(RunCurves(more), tmp_path / "a.png")
    wanted = {"Distance from the sampling policy", "Clipped share", "Diversity"}
    assert wanted <= set(titles(figures[1]))
    for axes in figures[1].axes:
        assert axes.has_data()
        assert axes.get_xlabel() == "iteration"
        assert axes.get_ylabel()
    with Image.open(tmp_path / "a.png") as image:
        assert image.width > 1000


def test_what_says_nothing_has_no_panel(tmp_path: Path, figures: list[Figure]) -> None:
    metrics = [{**record, "ratio/clip_fraction": 0.0} for record in run(5)]
    draw_curves(RunCurves(metrics), tmp_path / "a.png")
    assert not {"Clipped share", "Loss"} & set(titles(figures[0]))


def test_another_reward_can_be_the_main_one(tmp_path: Path, figures: list[Figure]) -> None:
    draw_curves(RunCurves(run(3), "strict"), tmp_path / "a.png")
    assert titles(figures[0])[:2] == ["Reward: strict", "shapes"]


def test_evaluations_are_markers_with_intervals(tmp_path: Path, figures: list[Figure]) -> None:
    values = np.array([0.0, 0.5, 1.0, 0.5])
    scores = {i: Scores(["p"] * 4, {"shapes": values}) for i in (0, 5)}
    metrics = [evaluated(0, 0.5), *run(5), evaluated(5, 0.5)]
    draw_curves(RunCurves(metrics, None, scores, label="held out"), tmp_path / "a.png")
    axes = figures[0].axes[0]
    (bars,) = axes.containers
    line, _, (sticks,) = bars.lines
    assert line.get_xdata().tolist() == [0, 5]
    assert line.get_linestyle() == "None"
    low, high = sorted(y for _, y in sticks.get_segments()[0])
    assert 0 <= low < 0.4
    assert 0.6 < high <= 1
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["training", "held out, 95 % interval"]


@pytest.mark.slow
def test_each_prompt_set_has_its_panels_with_intervals(
    tmp_path: Path, figures: list[Figure]
) -> None:
    own = {i: Scores(["p"] * 2, {"shapes": np.array([0.0, 1.0])}) for i in (0, 5)}
    values = {name: np.array([0.2, 0.4]) for name in ("ocr", "hps", "jpeg", "fourth")}
    of_set = {i: Scores(["a", "b"], values, separate=True) for i in (0, 5)}
    logged = {f"eval/signs/{name}/mean": 0.3 for name in values}
    metrics = [{**evaluated(0, 0.5), **logged}, *run(5), {**evaluated(5, 0.5), **logged}]
    draw_curves(RunCurves(metrics, None, own, sets={"signs": of_set}), tmp_path / "a.png")
    shown = titles(figures[0])
    assert shown[:2] == ["Reward: shapes", "strict"]
    assert shown[2:5] == ["ocr on signs", "hps on signs", "jpeg on signs"]
    assert "fourth on signs" not in shown
    axes = figures[0].axes[2]
    (bars,) = axes.containers
    line, _, (sticks,) = bars.lines
    assert line.get_ydata().tolist() == [0.3, 0.3]
    assert sorted(y for _, y in sticks.get_segments()[0]) == pytest.approx([0.2, 0.4])
    (label,) = [text.get_text() for text in axes.get_legend().get_texts()]
    assert label == "held-out prompts, 95 % interval"


def test_the_band_holds_the_samples_and_stays_in_their_range(
    tmp_path: Path, figures: list[Figure]
) -> None:
    ends = {"reward/shapes/p10": 0.2, "reward/shapes/p90": 1.0}
    metrics = [record | ends for record in run(5)]
    draw_curves(RunCurves(metrics), tmp_path / "a.png")
    (band,) = figures[0].axes[0].collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0.2, 1.0)


def test_a_noisy_curve_is_smoothed_and_its_points_are_kept(
    tmp_path: Path, figures: list[Figure]
) -> None:
    draw_curves(RunCurves(run(40)), tmp_path / "a.png")
    points, line = figures[0].axes[0].lines
    assert points.get_marker() == "o"
    assert points.get_linestyle() == "None"
    assert line.get_label() == "training, mean of 7"
    assert smoothing(9) == 1
    assert moving_average([0.0, 3.0, 0.0, 9.0], 3) == [0.0, 1.0, 4.0, 9.0]


def test_a_panel_begins_where_its_data_begins(tmp_path: Path, figures: list[Figure]) -> None:
    metrics = [evaluated(0, 0.4), *run(20), evaluated(20, 0.6)]
    draw_curves(RunCurves(metrics, ticks=[0, 10, 20]), tmp_path / "a.png")
    panels = dict(zip(titles(figures[0]), figures[0].axes, strict=True))
    assert panels["Reward: shapes"].get_xlim()[0] < 0
    assert panels["Gradient norm"].get_xlim()[0] > 0
    assert all(axes.get_xticks().tolist() == [0, 10, 20] for axes in panels.values())


def test_a_legend_covers_no_data(tmp_path: Path, figures: list[Figure]) -> None:
    metrics = [evaluated(0, 0.4), *run(5), evaluated(5, 0.6)]
    draw_curves(RunCurves(metrics), tmp_path / "a.png")
    axes = figures[0].axes[0]
    assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1 - 3


def test_times_are_stacked_to_their_sum(tmp_path: Path, figures: list[Figure]) -> None:
    metrics = run(3)
    del metrics[1]["time/score"]
    draw_curves(RunCurves(metrics), tmp_path / "a.png")
    bars = figures[0].axes[-1].patches
    tops = [max(b.get_y() + b.get_height() for b in bars[i::3]) for i in range(3)]
    assert tops == pytest.approx([3.73, 3.54, 3.79])


def test_missing_values_are_left_out(tmp_path: Path, figures: list[Figure]) -> None:
    metrics = run(4)
    metrics[2]["grad/norm"] = None
    draw_curves(RunCurves(metrics), tmp_path / "a.png")
    _, line = figures[0].axes[2].lines
    assert list(line.get_xdata()) == [1, 2, 4]


@pytest.mark.parametrize("metrics", [[], [{"iteration": 0, "time": 1.0}]])
def test_nothing_to_draw(tmp_path: Path, metrics: list[dict[str, float | None]]) -> None:
    assert not draw_curves(RunCurves(metrics), tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_one_iteration_is_enough(tmp_path: Path, figures: list[Figure]) -> None:
    assert draw_curves(RunCurves(run(1)), tmp_path / "a.png")
    assert figures[0].axes[0].lines[0].get_marker() == "o"


@pytest.mark.slow
def test_the_style_and_pyplot_are_left_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    draw_curves(RunCurves(run(2)), tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == before
    code = (
        "import sys, pathlib; from rlfactory.report.run_curves import RunCurves, draw_curves;"
        "heavy = [m for m in ('torch', 'matplotlib') if m in sys.modules];"
        f"draw_curves(RunCurves({run(2)!r}), pathlib.Path({str(tmp_path / 'b.png')!r}));"
        "sys.exit(str(heavy) if heavy or 'matplotlib.pyplot' in sys.modules else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def scores(*values: float) -> Scores:
    return Scores(["p"] * len(values), {"main": np.array(values)})


def test_each_panel_is_an_svg_with_its_unit() -> None:
    metrics = [{"iteration": i, "grad/norm": 0.1 * i, "reward/a/mean": 0.5} for i in range(1, 4)]
    first, second = run_plots(RunCurves(metrics), None, None, "")
    assert (first.label, second.label) == ("Reward: a", "Gradient norm")
    assert second.unit == "norm before clipping"
    assert second.svg.startswith("<svg")
    assert "norm before clipping" not in second.svg
    assert "var(--c0)" in second.svg


def test_a_legend_of_three_rows_lies_within_the_picture() -> None:
    own = {"reward/main/p10": 0.2, "reward/main/p90": 0.8, "reward/main/mean": 0.5}
    metrics = [{"iteration": i, **own, "eval/main/mean": 0.4} for i in range(12)]
    plot, *_ = run_plots(RunCurves(metrics, "main", {0: scores(0.1, 0.7)}), None, None, "main")
    placed = re.search(r' y="([-\d.]+)"[^>]*>80 % of samples', plot.svg)
    assert placed is not None
    assert "95 % interval" in plot.svg
    assert float(placed[1]) > 10  # points below the upper edge, of letters of 8


def test_a_histogram_shows_both_distributions() -> None:
    found = histogram(scores(0, 0.1, 0.2, 0.9), scores(1, 0.8, 0.9, 0.1), "main")
    assert found is not None
    assert found.unit == "prompts"
    assert "before, mean 0.3" in found.svg
    assert "after, mean 0.7" in found.svg
    assert ">0.4<" in found.svg


def test_few_or_equal_scores_make_no_histogram() -> None:
    assert histogram(scores(0, 1), scores(0, 1), "main") is None
    assert histogram(scores(1, 1, 1, 1), scores(1, 1, 1, 1), "main") is None
    missing = scores(float("nan"), 1, 0, 0)
    assert histogram(missing, missing, "main") is None
    assert histogram(scores(0, 1, 2, 3), scores(0, 1, 2, 3), "other") is None
