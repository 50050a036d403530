"""One metric as a small plot: a line and its band for each row, the paper's value dashed.

It is SVG that can be read as it stands; the page's script adds the values under the pointer, from
`data`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlfactory.report.page.axis import extent, tick_text, ticks
from rlfactory.report.page.markup import Markup, join, tag
from rlfactory.report.page.words import fixed
from rlfactory.report.report import Curve

WIDTH, HEIGHT = 400, 236
LEFT, TOP, RIGHT, BOTTOM = 50, 10, 388, 204
MOST_POINTS = 400
COLOURS = 8

Span = tuple[float, float]
Scale = Callable[[float], float]  # from a value to its place in the picture
Point = tuple[float, float, float, float]  # iteration, mean, low, high


@dataclass(frozen=True)
class Panel:
    """The curves of one metric. `rows` are the numbers of their rows, by which they are coloured
    and hidden.
    """

    label: str
    digits: int
    curves: Sequence[Curve]
    rows: Sequence[int]

    def spans(self) -> tuple[Span, Span]:
        """What the two axes reach over."""
        at = [x for curve in self.curves for x in curve.x]
        means = [m for curve in self.curves for m in curve.mean if math.isfinite(m)]
        edges = [e for curve in self.curves for e in [*curve.low, *curve.high]]
        papers = [curve.paper for curve in self.curves if curve.paper is not None]
        across = (min(at), max(at)) if max(at) > min(at) else (min(at) - 1, max(at) + 1)
        return across, extent(means, edges, papers)

    def far(self) -> list[Curve]:
        """Those whose paper's value lies outside the plot."""
        low, high = self.spans()[1]
        return [c for c in self.curves if c.paper is not None and not low <= c.paper <= high]


def has_points(curve: Curve) -> bool:
    """Whether there is anything to draw."""
    return any(map(math.isfinite, curve.mean))


def thinned(curve: Curve) -> list[Point]:
    """At most `MOST_POINTS` of its points, the first and the last among them."""
    points = list(zip(curve.x, curve.mean, curve.low, curve.high, strict=True))
    points = [point for point in points if math.isfinite(point[1])]
    if len(points) <= MOST_POINTS:
        return points
    step = (len(points) - 1) / (MOST_POINTS - 1)
    return [points[round(i * step)] for i in range(MOST_POINTS)]


def data(panel: Panel) -> dict[str, object]:
    """What the script needs to find the point under the pointer and to name it."""
    (left, right), (low, high) = panel.spans()
    lines = []
    for row, curve in zip(panel.rows, panel.curves, strict=True):
        x, *values = zip(*thinned(curve), strict=True)
        numbers = [[_short(v) for v in column] for column in values]
        mean, below, above = numbers
        line = {"row": row, "x": x, "mean": mean, "low": below, "high": above}
        lines.append(line | {"paper": curve.paper})
    return {
        "label": panel.label,
        "digits": panel.digits,
        "x": [left, right],
        "y": [low, high],
        "box": [LEFT, TOP, RIGHT, BOTTOM],
        "lines": lines,
    }


def draw(panel: Panel, number: int) -> Markup:
    """The SVG; `number` tells its clip path from those of the others."""
    (left, right), (low, high) = panel.spans()

    def across(x: float) -> float:
        return round(LEFT + (x - left) / (right - left) * (RIGHT - LEFT), 2)

    def up(y: float) -> float:
        return round(BOTTOM - (y - low) / (high - low) * (BOTTOM - TOP), 2)

    clip = tag(
        "clipPath",
        tag("rect", x=LEFT, y=TOP - 2, width=RIGHT - LEFT + 4, height=BOTTOM - TOP + 4),
        id=f"clip{number}",
    )
    pairs = list(zip(panel.rows, panel.curves, strict=True))
    papers = [_paper(row, up(c.paper)) for row, c in pairs if c.paper is not None]
    lines = [_series(row, thinned(curve), across, up) for row, curve in pairs]
    inner = tag("g", *papers, *lines, clip_path=f"url(#clip{number})")
    axes = join(_vertical((low, high), up), _horizontal((left, right), across))
    return tag(
        "svg",
        *(clip, axes, inner),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=_spoken(panel),
    )


def _series(row: int, points: Sequence[Point], across: Scale, up: Scale) -> Markup:
    places = [(across(x), up(mean)) for x, mean, _, _ in points]
    if len(points) == 1:
        (x, y), (_, _, low, high) = places[0], points[0]
        bar = tag("line", class_="line", x1=x, x2=x, y1=up(low), y2=up(high))
        mark = join(bar, tag("circle", class_="dot", cx=x, cy=y, r=3.5))
    else:
        edges = [(across(x), up(high)) for x, _, _, high in points]
        edges += [(across(x), up(low)) for x, _, low, _ in reversed(points)]
        mark = join(
            tag("path", class_="band", d=_path(edges) + "Z"),
            tag("path", class_="line", d=_path(places)),
        )
    return tag("g", mark, class_=f"series {colour(row)}", data_row=row)


def colour(row: int) -> str:
    """The classes of a row's colour; a second round through them is drawn with long dashes."""
    return f"c{row % COLOURS}" + (" again" if row >= COLOURS else "")


def _paper(row: int, y: float) -> Markup:
    line = tag("line", x1=LEFT, x2=RIGHT, y1=y, y2=y)
    return tag("g", line, class_=f"paper {colour(row)}", data_row=row)


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in places)


def _vertical(span: Span, up: Scale) -> Markup:
    at = ticks(*span)
    step = at[1] - at[0] if len(at) > 1 else span[1] - span[0]
    lines = [tag("line", x1=LEFT, x2=RIGHT, y1=up(y), y2=up(y)) for y in at]
    texts = [tag("text", tick_text(y, step), x=LEFT - 7, y=up(y), dy="0.32em") for y in at]
    return tag("g", *lines, *texts, class_="grid up")


def _horizontal(span: Span, across: Scale) -> Markup:
    at = ticks(*span, whole=True)
    line = tag("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM)
    texts = [tag("text", tick_text(x, 1), x=across(x), y=BOTTOM + 17) for x in at]
    return tag("g", line, *texts, class_="grid across")


def _spoken(panel: Panel) -> str:
    ends = []
    for curve in panel.curves:
        points = thinned(curve)
        first, last = (fixed(points[i][1], panel.digits) for i in (0, -1))
        ends.append(f"{curve.row} from {first} to {last}")
    return f"{panel.label} over iterations: {'; '.join(ends)}."


def _short(value: float) -> float | None:
    """Enough digits for any tooltip, and no more of them in the page."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
