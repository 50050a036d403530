import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.figure import Figure
from PIL import Image

from rlfactory.run.curves import draw_curves

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


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that is saved, to be looked into."""
    kept: list[Figure] = []
    real = Figure.savefig

    def keep(self: Figure, *args: Any, **kwargs: Any) -> None:
        kept.append(self)
        real(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", keep)
    return kept


def run(length: int, **more: float) -> list[dict[str, float | None]]:
    return [{"iteration": i, "time": 4.0 * i, **TRAINING, **more} for i in range(length)]


def titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def test_only_what_was_measured_gets_a_panel(tmp_path: Path, figures: list[Figure]) -> None:
    assert draw_curves(run(5), tmp_path / "a.png")
    assert titles(figures[0]) == ["Reward: shapes", "Loss", "Gradient norm", "Time per iteration"]
    more = run(5, **{"kl/reference": 0.1, "ratio/clip_fraction": 0.2, "diversity/pairwise": 0.3})
    draw_curves(more, tmp_path / "a.png")
    assert {"KL to the reference", "Clipped share", "Diversity"} <= set(titles(figures[1]))
    for axes in figures[1].axes:
        assert axes.has_data()
        assert axes.get_xlabel() == "iteration"
        assert axes.get_ylabel()
    with Image.open(tmp_path / "a.png") as image:
        assert image.width > 1000


def test_another_reward_can_be_the_main_one(tmp_path: Path, figures: list[Figure]) -> None:
    draw_curves(run(3), tmp_path / "a.png", reward="strict")
    assert titles(figures[0])[0] == "Reward: strict"


def test_evaluations_and_their_intervals_are_drawn(tmp_path: Path, figures: list[Figure]) -> None:
    ends = [
        {
            "iteration": i,
            "eval/shapes/mean": m,
            "eval/shapes/low": m - 0.1,
            "eval/shapes/high": m + 0.1,
        }
        for i, m in ((0, 0.6), (5, 0.8))
    ]
    draw_curves([ends[0], *run(5), ends[1]], tmp_path / "a.png")
    lines = {line.get_label(): line for line in figures[0].axes[0].lines}
    held_out = lines["held-out prompts"]
    assert list(held_out.get_xdata()) == [0, 5]
    assert list(held_out.get_ydata()) == [0.6, 0.8]
    vertical = [line for line in figures[0].axes[0].lines if list(line.get_xdata()) == [5, 5]]
    assert list(vertical[0].get_ydata()) == pytest.approx([0.7, 0.9])
    assert list(lines["training"].get_xdata()) == [0, 1, 2, 3, 4]


def test_times_are_stacked_to_their_sum(tmp_path: Path, figures: list[Figure]) -> None:
    metrics = run(3)
    del metrics[1]["time/score"]
    draw_curves(metrics, tmp_path / "a.png")
    bars = figures[0].axes[-1].patches
    tops = [max(b.get_y() + b.get_height() for b in bars[i::3]) for i in range(3)]
    assert tops == pytest.approx([3.7, 3.5, 3.7])


def test_missing_values_are_left_out(tmp_path: Path, figures: list[Figure]) -> None:
    metrics = run(4)
    metrics[2]["loss/policy"] = None
    draw_curves(metrics, tmp_path / "a.png")
    (line,) = figures[0].axes[1].lines
    assert list(line.get_xdata()) == [0, 1, 3]


@pytest.mark.parametrize("metrics", [[], [{"iteration": 0, "time": 1.0}]])
def test_nothing_to_draw(tmp_path: Path, metrics: list[dict[str, float | None]]) -> None:
    assert not draw_curves(metrics, tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_one_iteration_is_enough(tmp_path: Path, figures: list[Figure]) -> None:
    assert draw_curves(run(1), tmp_path / "a.png")
    assert figures[0].axes[1].lines[0].get_marker() == "o"


def test_the_style_and_pyplot_are_left_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    draw_curves(run(2), tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == before
    code = (
        "import sys, pathlib; from rlfactory.run.curves import draw_curves;"
        "heavy = [m for m in ('torch', 'matplotlib') if m in sys.modules];"
        f"draw_curves({run(2)!r}, pathlib.Path({str(tmp_path / 'b.png')!r}));"
        "sys.exit(str(heavy) if heavy or 'matplotlib.pyplot' in sys.modules else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
