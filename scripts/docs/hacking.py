"""The tables of docs/hacking.md, and its figures, from the runs of the sweeps hacking*.

python scripts/docs/hacking.py outputs/sweeps/hacking-tiny  # add runs, draw the figures

A run that is given again replaces the stored one of the same row and seed.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import equal_gain
import numpy as np
from detector import auroc_by_task
from hacking_runs import (
    GOLD,
    MARGIN,
    Point,
    Run,
    examples,
    merged,
    read_runs,
    record_of,
    runs_in,
    spread,
    write_runs,
)

from rlfactory.report.claims import claim_results, claim_table, counts_text
from rlfactory.report.draw import short
from rlfactory.report.measure import resolved
from rlfactory.report.plot import COLORS, saved_figure
from rlfactory.report.report import ClaimResult
from rlfactory.report.run_groups import Group
from rlfactory.report.text_table import markdown_table
from rlfactory.sweep.jobs import columns_of
from rlfactory.sweep.sweep_file import file_of, read_sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOCS = Path(__file__).parents[2] / "docs"
STORE = DOCS / "results" / "hacking.runs.json"
BASELINE = {
    "hacking": "V-GRPO, biased",
    "hacking_digits": "V-GRPO",
    "hacking_words": "V-GRPO",
    "hacking_text": "PPO, no KL",
}
"""The row that those with a remedy are compared with."""
TITLES = {
    "hacking": "Images",
    "hacking_digits": "A learned proxy of real digits",
    "hacking_words": "Words, read by two OCR engines",
    "hacking_text": "Texts",
}
FURTHER = {
    "hacking": {"diversity": "diversity"},
    "hacking_digits": {
        "gold_top1/mean": "named right",
        "gold_frechet/mean": "Fréchet distance",
        "diversity": "diversity",
    },
    "hacking_words": {"diversity": "diversity"},
    "hacking_text": {"diversity": "distinct-2", "text/repetition": "repetition"},
}
"""Further metrics of a sweep's evaluations, with their titles."""
GAINS = (0.25, 0.5, 0.75)
"""Gains of the digits' proxy at which rows are compared."""
OWN_DISTANCE = "KL of steps"
"""How a row ends whose regularizer measures another distance than the others."""
ALL = ("proxy", "spread", "distance", "diversity")
NAMES = {
    "shapes_biased": "biased",
    "shapes_noisy": "noisy",
    "shapes_learned": "learned",
    "lexicon": "lexicon (texts)",
    "proxy": "digits",
    "ocr": "words",
}


def main() -> None:
    """Add the runs of the folders on the command line, then draw the figures."""
    new = [run for folder in sys.argv[1:] for run in runs_in(Path(folder))]
    runs = merged(read_runs(STORE), new)
    write_runs(runs, STORE)
    for sweep in GOLD:
        rows, path = of_sweep(runs, sweep), DOCS / "images" / f"{sweep}.png"
        if sweep == "hacking_digits":
            equal_gain.draw(rows, BASELINE[sweep], GAINS, path)
        else:
            draw(sweep, rows, path)


def body() -> str:
    """The tables of the page."""
    return page(read_runs(STORE))


def page(runs: Sequence[Run]) -> str:
    """The tables of runs."""
    lines: list[str] = []
    for sweep, title in TITLES.items():
        own = of_sweep(runs, sweep)
        lines += [
            f"## {title}",
            "",
            *(section(sweep, own) if own else ["No finished run yet.", ""]),
        ]
    lines += ["## A warning without the gold score", "", *detector_lines(runs)]
    return "\n".join(lines).rstrip("\n") + "\n"


def of_sweep(runs: Sequence[Run], sweep: str) -> dict[str, list[Run]]:
    """The runs of a sweep by row, in the order of its file."""
    names = [line.name for line in read_sheet(file_of(sweep)).rows]
    rows = {name: [r for r in runs if (r.sweep, r.row) == (sweep, name)] for name in names}
    return {name: own for name, own in rows.items() if own}


def section(sweep: str, rows: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    """The table of a sweep's rows, what it says, and its figure."""
    heads = ["row", "runs", "gold before", "change of gold", "change of proxy"]
    heads += [f"gold beside {BASELINE[sweep]}", "distance", *FURTHER[sweep].values()]
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'---:|' * (len(heads) - 1)}"
    for name, runs in rows.items():
        cells = [name, str(len(runs)), f"{mean(runs, lambda r: r.first.gold):.2f}"]
        cells += [spread(gold_changes(runs)), spread(proxy_changes(runs))]
        cells.append(beside(runs, rows.get(BASELINE[sweep], [])))
        cells.append(f"{mean(runs, lambda r: r.last.distance):.3g}")
        for key in FURTHER[sweep]:
            before, after = (mean(runs, at(key, i)) for i in (0, -1))
            cells.append(f"{before:.3f} → {after:.3f}")
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield from controls(rows)
    yield from claim_lines(sweep, rows)
    if sweep == "hacking_digits":
        yield from equal_lines(rows)
        return
    yield f"![Gold against proxy, and against distance](images/{sweep}.png)"
    yield ""
    yield caption(sweep == "hacking_text")
    yield ""


def equal_lines(rows: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    """The comparison at equal gains of the proxy, with its picture."""
    yield "At equal gains of the proxy (the figure has the rows of a gain side by side):"
    yield ""
    sweep = "hacking_digits"
    yield from equal_gain.table(rows, BASELINE[sweep], GAINS, FURTHER[sweep])
    yield ""
    yield f"![Change of gold over the gain of the proxy](images/{sweep}.png)"
    yield ""


def caption(texts: bool) -> str:
    """What the figure shows."""
    told = (
        "Each line is the mean of a row's runs at its evaluations (small dots), from the untrained"
        " model (ring) to the last one (large dot); thin lines are single runs. The distance is the"
        f" {unit_of(texts)} from the model before training, in the last iteration before the"
        " evaluation."
    )
    own = f" That of {OWN_DISTANCE}, not drawn, is the KL divergence of the sampling steps."
    return told if texts else told + own


def unit_of(texts: bool) -> str:
    """What the distance of a row is."""
    return "KL divergence a token" if texts else "mean squared distance of velocities"


def at(key: str, index: int) -> Callable[[Run], float]:
    """A further metric of a run's evaluation."""
    return lambda run: run.points[index].others.get(key, math.nan)


def mean(runs: Sequence[Run], value: Callable[[Run], float]) -> float:
    """The mean over runs."""
    return float(np.mean([value(run) for run in runs]))


def gold_changes(runs: Sequence[Run]) -> list[float]:
    """Each run's gold score after training less that before."""
    return [run.last.gold - run.first.gold for run in runs]


def proxy_changes(runs: Sequence[Run]) -> list[float]:
    """The same of the proxy."""
    return [run.last.proxy - run.first.proxy for run in runs]


def beside(runs: Sequence[Run], baseline: Sequence[Run]) -> str:
    """The gold score after training less the baseline's of the same seed; a dash for itself."""
    other = {run.seed: run.last.gold for run in baseline}
    values = [run.last.gold - other[run.seed] for run in runs if run.seed in other]
    return "–" if runs == baseline else spread(values)


def claim_lines(sweep: str, rows: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    """The claims of the sweep's file with their verdicts."""
    results = decided_claims(sweep, rows)
    table = claim_table(results)
    assert table is not None
    yield f"{counts_text(results)}."
    yield ""
    yield from markdown_table(table)
    yield ""


def tested() -> dict[str, list[ClaimResult]]:
    """The verdicts on the claims of each sweep whose runs are stored."""
    runs = read_runs(STORE)
    rows = {sweep: of_sweep(runs, sweep) for sweep in TITLES}
    return {sweep: decided_claims(sweep, own) for sweep, own in rows.items() if own}


def decided_claims(sweep: str, rows: Mapping[str, Sequence[Run]]) -> list[ClaimResult]:
    """The verdicts by the rules of all reports, from the mean scores of the stored runs."""
    sheet = read_sheet(file_of(sweep))
    records = {
        line.name: [record_of(run) for run in rows.get(line.name, [])] for line in sheet.rows
    }
    groups = [Group(name, own) for name, own in records.items()]
    every = [record for own in records.values() for record in own]
    columns = [resolved(column, every) for column in columns_of(sheet, "tiny")]
    return claim_results(sheet.claims, columns, groups, "tiny")


def controls(rows: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    """What training on the gold score itself does to it, beside the same algorithm's proxy."""
    found = []
    for name, runs in rows.items():
        if name.split(", ")[1:2] == ["gold"]:
            other = rows.get(name.replace("gold", "biased"), [])
            apart = beside(other, runs) if other else "–"
            found.append(f"{name}: {spread(gold_changes(runs))}, biased beside it: {apart}")
    if found:
        yield (
            f"Change of gold in controls, which train on gold itself: {'; '.join(found)}. Where a"
            " control loses too, the rate alone lowers the gold score: then only what a biased row"
            " loses beyond its control is the proxy's doing."
        )
        yield ""


def detector_lines(runs: Sequence[Run]) -> Iterator[str]:
    """What the detector sees, and its AUROC on tasks that it was not fitted on."""
    known = [*examples(runs)]
    tasks = [*dict.fromkeys(example.task for example in known)]
    yield (
        "A logistic model (`scripts/docs/detector.py`) sees four logged metrics at an evaluation"
        " and none of the gold score: the rise of the training reward, and the changes of its"
        " standard deviation, of `kl/reference` and of the samples' diversity, each against the"
        f" first iterations. It warns that the gold score is {MARGIN} below that before training."
        " Rows that train on the gold score are left out, as their training reward is that score."
        " Each proxy's runs are judged by a model that was fitted on the other proxies' runs"
        " alone. The AUROC is the chance that an evaluation with a fallen gold score gets the"
        " stronger warning of two; a coin has 0.5. The number of the iteration is no metric, and"
        " what does not warn better than it says no more than the clock."
    )
    yield ""
    if len(tasks) < 2:
        yield f"There are runs of {len(tasks)} proxy, and none can be left out: no AUROC yet."
        return
    sets = {"all four": ALL, **{f"{name} alone": (name,) for name in (*ALL, "iteration")}}
    found = {title: auroc_by_task(known, names) for title, names in sets.items()}
    yield f"| left-out proxy | runs | evaluations | fallen | {' | '.join(sets)} |"
    yield f"|---|{'---:|' * (3 + len(sets))}"
    for task in tasks:
        own = [example for example in known if example.task == task]
        count = sum(run.proxy == task for run in runs)
        cells = [NAMES[task], str(count), str(len(own)), str(sum(e.fallen for e in own))]
        cells += [_number(found[title][task]) for title in sets]
        yield f"| {' | '.join(cells)} |"
    usable = [task for task in tasks if not math.isnan(found["all four"][task])]
    largest = ""
    if usable:
        means = {t: float(np.mean([found[t][task] for task in usable])) for t in sets}
        yield f"| mean | | | | {' | '.join(map(_number, means.values()))} |"
        best = max(means, key=lambda title: means[title])
        largest = f" The largest mean is that of: {best}, {_number(means[best])}."
    yield ""
    yield (
        f"{len(known)} evaluations of short runs of {len(tasks)} proxies are few, and those of one"
        " run are not independent: the AUROC of a proxy is a mean over few pairs. It needs"
        " evaluations with a fallen gold score and without, both of the left-out proxy and of the"
        f" others: {len(usable)} of the {len(tasks)} proxies have them.{largest} It shows neither"
        " that the four metrics suffice for other models and rewards nor which threshold to warn"
        " at."
    )


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def panels_of(rows: Mapping[str, Sequence[Run]]) -> dict[str, list[str]]:
    """The rows of each column of the figure: algorithms on one proxy, remedies, other proxies."""
    columns: dict[str, list[str]] = {
        "Algorithms": [],
        "Remedies": [],
        "Others, and gold": [],
    }
    for name in rows:
        algorithm, _, rest = name.partition(", ")
        if rest == "biased":
            columns["Algorithms"].append(name)
        if rest.startswith("biased") and (rest != "biased" or algorithm == "V-GRPO"):
            columns["Remedies"].append(name)
        if rest and not rest.startswith("biased"):
            columns["Others, and gold"].append(name)
    return {title: names for title, names in columns.items() if names}


def draw(sweep: str, rows: Mapping[str, Sequence[Run]], path: Path) -> None:
    """Above, the gold score against the proxy; below, against the root of the distance."""
    if not rows:
        return
    texts = sweep == "hacking_text"
    columns = panels_of(rows) if sweep == "hacking" else {TITLES[sweep]: [*rows]}
    width, height = max(4.4 * len(columns), 5.2), 7.4
    with saved_figure((width, height), path) as figure:
        grid = figure.subplots(2, len(columns), squeeze=False, sharey=True)
        for place, (title, names) in enumerate(columns.items()):
            upper, lower = grid[0, place], grid[1, place]
            for name, colour in zip(names, cycle(COLORS), strict=False):
                draw_row(upper, rows[name], lambda p: p.proxy, colour, label(name))
                if not name.endswith(OWN_DISTANCE):
                    draw_row(lower, rows[name], lambda p: math.sqrt(max(p.distance, 0)), colour, "")
            upper.set_title(title)
            upper.set_xlabel("proxy")
            lower.set_xlabel(f"root of the {unit_of(texts)}")
            upper.legend(fontsize=7, loc="best")
        for axes in grid[:, 0]:
            axes.set_ylabel("gold")


def label(name: str) -> str:
    """A row's name in a legend."""
    return short(name, 44)


def draw_row(
    axes: "Axes", runs: Sequence[Run], x: Callable[[Point], float], colour: str, label: str
) -> None:
    """Single runs as thin lines, their mean as a thick one with its ends marked."""
    paths = np.array([[(x(p), p.gold) for p in run.points] for run in runs])
    for run in paths:
        axes.plot(run[:, 0], run[:, 1], color=colour, alpha=0.4, linewidth=0.8)
    middle = paths.mean(0)
    axes.plot(middle[:, 0], middle[:, 1], "o-", color=colour, label=label, markersize=2.5)
    axes.plot(*middle[-1], "o", color=colour, markersize=5)
    axes.plot(*middle[0], "o", color="#55575e", markersize=5, markerfacecolor="white", zorder=4)


if __name__ == "__main__":
    main()
