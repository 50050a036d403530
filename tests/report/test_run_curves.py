"""The curves of a run: which panels it has, and what stands in them."""

import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from rlfactory.report.draw import draw_figure, plots
from rlfactory.report.read import series_of
from rlfactory.report.report import Curve
from rlfactory.report.run_curves import histogram, moving_average, run_curves, smoothing
from rlfactory.run.metrics import Record
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


def run(length: int, **more: float) -> list[Record]:
    """Iterations 1 to `length`, each metric rising a little."""
    return [
        {"iteration": i, "time": 4.0 * i, **{k: v + 0.01 * i for k, v in (TRAINING | more).items()}}
        for i in range(1, length + 1)
    ]


def evaluated(at: int, mean: float) -> Record:
    return {"iteration": at, "eval/shapes/mean": mean}


def panels(curves: list[Curve]) -> dict[str, list[Curve]]:
    return {title: [c for c in curves if c.label == title] for title in titles(curves)}


def titles(curves: list[Curve]) -> list[str]:
    return [*dict.fromkeys(curve.label for curve in curves)]


def drawn(records: list[Record], main: str = "", **more: object) -> list[Curve]:
    given = {"evaluations": {}, "sets": {}, **more}
    return run_curves(series_of(records), main, **given)  # type: ignore[arg-type]


def test_only_what_was_measured_gets_a_panel() -> None:
    shown = ["Reward: shapes", "strict", "Gradient norm", "Time per iteration"]
    assert titles(drawn(run(5))) == shown
    more = run(5, **{"kl/old": 0.1, "ratio/clip_fraction": 0.2, "diversity/pairwise": 0.3})
    wanted = {"Distance from the sampling policy", "Clipped share", "Diversity"}
    assert wanted <= {*titles(drawn(more))}
    assert drawn([]) == drawn([{"iteration": 0, "time": 1.0}]) == []


def test_what_says_nothing_has_no_panel() -> None:
    metrics = [{**record, "ratio/clip_fraction": 0.0} for record in run(5)]
    assert not {"Clipped share", "Loss"} & {*titles(drawn(metrics))}
    assert "Clipped share" in titles(drawn(metrics[:1]))  # one value says what it is


def test_another_reward_can_be_the_main_one() -> None:
    assert titles(drawn(run(3), "strict"))[:2] == ["Reward: strict", "shapes"]


def test_evaluations_are_dots_with_intervals_over_prompts() -> None:
    values = np.array([0.0, 0.5, 1.0, 0.5])
    scores = {i: Scores(["p"] * 4, {"shapes": values}, separate=True) for i in (0, 5)}
    metrics = [evaluated(0, 0.5), *run(5), evaluated(5, 0.5)]
    training, dots = panels(drawn(metrics, evaluations=scores))["Reward: shapes"]
    assert (training.row, dots.row) == ("training", "held-out prompts")
    assert (training.joined, dots.joined) == (True, False)
    assert dots.x == [0, 5]
    assert 0 <= dots.low[0] < 0.4
    assert 0.6 < dots.high[0] <= 1


def test_each_prompt_set_has_its_panels_with_intervals() -> None:
    own = {i: Scores(["p"] * 2, {"shapes": np.array([0.0, 1.0])}) for i in (0, 5)}
    values = {name: np.array([0.2, 0.4]) for name in ("ocr", "hps", "jpeg", "fourth")}
    of_set = {i: Scores(["a", "b"], values, separate=True) for i in (0, 5)}
    logged = {f"eval/signs/{name}/mean": 0.3 for name in values}
    metrics = [{**evaluated(0, 0.5), **logged}, *run(5), {**evaluated(5, 0.5), **logged}]
    curves = drawn(metrics, evaluations=own, sets={"signs": of_set})
    shown = ["Reward: shapes", "strict", "ocr on signs", "hps on signs", "jpeg on signs"]
    assert titles(curves)[:5] == shown
    assert "fourth on signs" not in titles(curves)
    (dots,) = panels(curves)["ocr on signs"]
    assert dots.mean == [0.3, 0.3]
    assert (dots.row, dots.low[0], dots.high[0]) == ("held-out prompts", 0.2, 0.4)


def test_the_band_holds_most_samples() -> None:
    ends = {"reward/shapes/p10": 0.2, "reward/shapes/p90": 1.0}
    first, *_ = drawn([record | ends for record in run(5)])
    assert ({*first.low}, {*first.high}) == ({0.2}, {1.0})


def test_a_noisy_curve_is_smoothed_and_its_points_are_kept() -> None:
    first, *_ = drawn(run(40))
    assert first.row == "training, mean of 7"
    assert first.points == pytest.approx([0.7 + 0.01 * i for i in range(1, 41)])
    assert smoothing(9) == 1
    assert moving_average([0.0, 3.0, 0.0, 9.0], 3) == [0.0, 1.0, 4.0, 9.0]


def test_times_are_told_by_phase() -> None:
    metrics = run(3)
    del metrics[1]["time/score"]
    curves = panels(drawn(metrics))["Time per iteration"]
    assert [curve.row for curve in curves] == ["sample", "score", "learn"]
    assert curves[1].x == [1, 3]


def test_missing_values_are_left_out() -> None:
    metrics = run(4)
    metrics[2]["grad/norm"] = None
    (curve,) = panels(drawn(metrics))["Gradient norm"]
    assert curve.x == [1, 2, 4]


def test_a_score_of_rows_of_data_is_drawn_with_its_unit() -> None:
    records = [{"iteration": i, "policy/accuracy": 0.1 * i} for i in range(1, 4)]
    records.append({"iteration": 3, "eval/token_accuracy/mean": 0.3})
    (plot,) = plots(curves := drawn(records), [*dict.fromkeys(c.row for c in curves)])
    assert (plot.label, plot.unit) == ("Token accuracy", "share of tokens")


@pytest.mark.slow
def test_the_style_and_pyplot_are_left_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    draw_figure(drawn(run(2)), tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == before
    code = (
        "import sys, pathlib; from rlfactory.report.run_curves import run_curves;"
        "from rlfactory.report.draw import draw_figure;"
        "from rlfactory.report.read import series_of;"
        "heavy = [m for m in ('torch', 'matplotlib') if m in sys.modules];"
        f"curves = run_curves(series_of({run(2)!r}), '', {{}}, {{}});"
        f"draw_figure(curves, pathlib.Path({str(tmp_path / 'b.png')!r}));"
        "sys.exit(str(heavy) if heavy or 'matplotlib.pyplot' in sys.modules else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def scores(*values: float) -> Scores:
    return Scores(["p"] * len(values), {"main": np.array(values)})


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
