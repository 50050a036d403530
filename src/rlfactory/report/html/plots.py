"""The page's plots: matplotlib's SVG, and numbers as the page and its script show them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from rlfactory.report.plot import by_metric, panel_svg
from rlfactory.report.report import Curve, Report
from rlfactory.run.labels import metric_unit

NONE = "–"
MINUS = "\N{MINUS SIGN}"


def fixed(value: float | None, digits: int) -> str:
    """That many decimals, with a typographic minus; a dash for an unknown number."""
    if value is None or math.isnan(value):
        return NONE
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", MINUS)


def interval(mean: float | None, low: float | None, high: float | None, digits: int) -> str:
    """`± half` where the interval is symmetric about the mean, else both ends; empty if unknown."""
    if mean is None or low is None or high is None:
        return ""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    below, above = mean - low, high - mean
    if abs(below - above) <= 0.5 * 10**-digits:
        return f"± {fixed((below + above) / 2, digits)}"
    return f"[{fixed(low, digits)}, {fixed(high, digits)}]"


def count(value: float | None) -> str:
    """A number of things in about three digits: 960, 5,400, 138 k, 1.2 M."""
    if value is None or math.isnan(value):
        return NONE
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(size, 1e4):
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}"


FAR = 1.5  # a paper's value further from the curves than this many of their spans is not drawn


@dataclass(frozen=True)
class MetricPlot:
    """One metric. `data` is for the script; `far` names the paper's values outside the axes."""

    label: str
    unit: str
    svg: Markup
    spoken: str
    far: list[str]
    data: dict[str, object]


def rows_with_curves(report: Report) -> list[str]:
    """Names of the rows that have a curve, in the table's order; the position is the colour."""
    having = dict.fromkeys(curve.row for curve in report.curves if _finite(curve).x)
    names = [row.name for row in report.rows if row.name in having]
    return [*names, *(name for name in having if name not in names)]


def plots(report: Report) -> list[MetricPlot]:
    """A plot for each metric, in the order in which they come."""
    rows = rows_with_curves(report)
    digits = {column.label: column.digits + 1 for column in report.columns}
    panels = by_metric([curve for c in report.curves if (curve := _finite(c)).x])
    return [_plot(panel, rows, digits, f"p{i}") for i, panel in enumerate(panels)]


def _plot(
    panel: Sequence[Curve], rows: Sequence[str], digits: dict[str, int], name: str
) -> MetricPlot:
    label = panel[0].label or panel[0].metric
    own = digits.get(label, 4)
    far = [curve for curve in panel if not _is_near(curve.paper, panel)]
    near = [replace(curve, paper=None) if curve in far else curve for curve in panel]
    svg, limits = panel_svg(near, rows, name)
    spoken = [f"{c.row} from {fixed(c.mean[0], own)} to {fixed(c.mean[-1], own)}" for c in panel]
    return MetricPlot(
        label=label,
        unit=metric_unit(panel[0].metric),
        svg=Markup(svg),  # it holds numbers alone, no names of rows
        spoken=f"{label} over iterations: {'; '.join(spoken)}.",
        far=[*dict.fromkeys(f"{c.row} {fixed(c.paper, max(0, own - 1))}" for c in far)],
        data={
            "digits": own,
            "limits": limits,
            "lines": [_numbers(curve, rows.index(curve.row)) for curve in panel],
        },
    )


def _numbers(curve: Curve, row: int) -> dict[str, object]:
    """The values in six digits: enough for any tooltip."""
    ends = {"mean": curve.mean, "low": curve.low, "high": curve.high}
    short = {
        name: [float(f"{v:.6g}") if math.isfinite(v) else None for v in values]
        for name, values in ends.items()
    }
    return {"row": row, "x": curve.x, **short}


def _is_near(paper: float | None, panel: Sequence[Curve]) -> bool:
    """Whether the axis can hold a paper's value without making the curves flat."""
    means = [mean for curve in panel for mean in curve.mean]
    low, high = min(means), max(means)
    reach = FAR * (high - low or max(abs(high) * 0.1, 1e-6))
    return paper is None or low - reach <= paper <= high + reach


def _finite(curve: Curve) -> Curve:
    """A curve without the points, and without the paper's value, that are not finite."""
    points = zip(curve.x, curve.mean, curve.low, curve.high, strict=True)
    kept = [point for point in points if math.isfinite(point[1])]
    x, mean, low, high = ([point[i] for point in kept] for i in range(4))
    known = curve.paper is not None and math.isfinite(curve.paper)
    return replace(curve, x=x, mean=mean, low=low, high=high, paper=curve.paper if known else None)
