import numpy as np

from rlfactory.run.figures.curves import RunCurves
from rlfactory.run.page.plots import curve_plots, histogram
from rlfactory.run.scores import Scores


def scores(*values: float) -> Scores:
    return Scores(["p"] * len(values), {"main": np.array(values)})


def test_each_panel_is_an_svg_with_its_unit() -> None:
    metrics = [{"iteration": i, "grad/norm": 0.1 * i, "reward/a/mean": 0.5} for i in range(1, 4)]
    found = curve_plots(RunCurves(metrics))
    assert [*found] == ["Reward: a", "Gradient norm"]
    assert found["Gradient norm"].unit == "norm before clipping"
    assert found["Gradient norm"].svg.startswith("<svg")
    assert "norm before clipping" not in found["Gradient norm"].svg
    assert "var(--c0)" in found["Gradient norm"].svg


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
