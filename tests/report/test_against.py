"""One metric against another over training."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.config.problems import PlanError
from rlfactory.report.against import paths_of
from rlfactory.report.command import report
from rlfactory.report.report import Curve


def curve(row: str, metric: str, x: list[float], mean: list[float]) -> Curve:
    return Curve(row, metric, x, mean, [m - 1 for m in mean], [m + 1 for m in mean])


def test_a_row_is_followed_where_both_were_measured() -> None:
    curves = [
        curve("a", "kl/reference", [1, 2, 3, 4], [1.0, 4.0, 9.0, 16.0]),
        curve("a", "eval/gold/mean", [0, 2, 4], [0.1, 0.5, 0.3]),
        curve("b", "eval/gold/mean", [0, 2, 4], [0.1, 0.5, 0.3]),
    ]
    (path,) = paths_of(curves, "sqrt:kl/reference", "eval/gold/mean")
    assert path == ("a", [2.0, 4.0], [0.5, 0.3], [-0.5, -0.7], [1.5, 1.3])
    with pytest.raises(PlanError, match="eval/gold/mean"):
        paths_of(curves, "kl/reference", "eval/proxy/mean")


def test_the_report_draws_it(
    tmp_path: Path, filled_sweep: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = filled_sweep(tmp_path / "sweep")
    words = ["--format", "markdown", "--against", "reward/shapes/mean,kl/reference"]
    assert report([str(folder), *words]) == 0
    assert (folder / "report" / "against.png").is_file()
    assert "against.png" in capsys.readouterr().out
