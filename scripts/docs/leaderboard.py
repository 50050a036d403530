"""The tables of docs/leaderboard.md, and its figures, from the runs of the leaderboards.

python scripts/docs/leaderboard.py outputs/sweeps/leaderboard-tiny  # add runs, draw the figures

A folder is a sweep's, or one with a leaderboard.json. Runs are stored in
docs/results/NAME.runs.json, so that a leaderboard can grow over several machines: a run that is
given again replaces the stored one of the same method, task and seed. The runs of a search are
stored as the training reward of each rate.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from rlfactory.report.discover import report_of_sweep
from rlfactory.report.leaderboard import (
    ENTRIES_FILE,
    NOTE,
    draw_leaderboard,
    leaderboard_table,
    ranking,
    read_entries,
    write_entries,
)
from rlfactory.report.report import Entry
from rlfactory.report.text_table import NONE, markdown_table
from rlfactory.report.verdicts import (
    MIN_SEEDS,
    Evidence,
    greater,
    holm,
    paired_difference,
    verdict,
)
from rlfactory.sweep.sweep_file import SweepFile, file_of, read_sheet
from rlfactory.sweep.table import TABLE_FILE, Table

DOCS = Path(__file__).parents[2] / "docs"
BOARDS = {"leaderboard": "Images", "leaderboard_text": "Text"}
SEARCHES = ("leaderboard_search", "leaderboard_text_search")
SEARCH = "leaderboard_search.runs.json"
"""By task, method and learning rate, the training reward of the last four iterations."""
Found = Mapping[str, Mapping[str, Mapping[str, float]]]


def main() -> None:
    """Add the runs of the folders on the command line, then draw the figures."""
    for folder in map(Path, sys.argv[1:]):
        name = _board_of(folder)
        if name in SEARCHES:
            written = add_search(searched_in(folder), DOCS / "results" / SEARCH)
        else:
            stored = merged(stored_entries(name), entries_in(folder))
            written = write_entries(stored, _store(name))
        print(f"written: {written}")
    for name in BOARDS:
        if entries := stored_entries(name):
            draw_leaderboard(entries, _figure(name))
            print(f"written: {_figure(name)}")


def body() -> str:
    """The tables of the page."""
    lines: list[str] = []
    for name, title in BOARDS.items():
        if entries := stored_entries(name):
            figure = f"images/{_figure(name).name}"
            lines += section(title, entries, read_sheet(file_of(name)), figure)
    found = json.loads((DOCS / "results" / SEARCH).read_text(encoding="utf-8"))
    return "\n".join([*lines, *search_lines(found)])


def _figure(name: str) -> Path:
    return DOCS / "images" / f"{name}.png"


def _board_of(folder: Path) -> str:
    """The leaderboard that a folder's runs belong to: its sweep's, or that of images."""
    return Table.load(folder).name if (folder / TABLE_FILE).is_file() else "leaderboard"


def _store(name: str) -> Path:
    return DOCS / "results" / f"{name}.runs.json"


def stored_entries(name: str) -> list[Entry]:
    """The runs that docs/results stores of a leaderboard."""
    return read_entries(_store(name)) if _store(name).is_file() else []


def entries_in(folder: Path) -> list[Entry]:
    """The finished runs of a sweep's folder, or those of its leaderboard.json."""
    if not (folder / TABLE_FILE).is_file():
        return read_entries(folder / ENTRIES_FILE)
    return report_of_sweep(Table.load(folder), folder).entries


def merged(old: Sequence[Entry], new: Sequence[Entry]) -> list[Entry]:
    """All runs, a new one in place of an old one of the same method, task and seed."""
    by_key = {(e.method, e.task, e.seed): e for e in [*old, *new]}
    return [by_key[key] for key in sorted(by_key)]


def searched_in(folder: Path) -> Found:
    """The training reward of each finished run of a search."""
    table = Table.load(folder)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in report_of_sweep(table, folder).rows:
        line, _, rate = row.name.partition(", optimizer.lr=")
        method, _, task = line.rpartition(" on ")
        values = [cell.mean for cell in row.cells.values() if cell.mean is not None]
        if values:
            found.setdefault(task, {}).setdefault(method, {})[rate] = round(values[0], 3)
    return found


def add_search(found: Found, path: Path) -> Path:
    """Add rewards to those stored; a rate that was tried again replaces the former."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    for task, rows in found.items():
        for method, rewards in rows.items():
            stored.setdefault(task, {}).setdefault(method, {}).update(rewards)
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return path


def section(title: str, entries: Sequence[Entry], sheet: SweepFile, figure: str) -> list[str]:
    """The lines about one leaderboard."""
    table = leaderboard_table(entries)
    assert table is not None
    tasks = [f"{name} (target {task.target:g})" for name, task in sheet.tasks.items()]
    return [
        f"## {title}",
        "",
        f"Tasks: {', '.join(tasks)}. {NOTE}",
        "",
        *markdown_table(table),
        "",
        *verdicts(entries),
        "",
        *passes(entries),
        f"![{title}: gains and profiles, and training where passes were counted]({figure})",
        "",
    ]


def search_lines(found: Found) -> Iterator[str]:
    """The training rewards that chose the learning rates, the best of each row in bold."""
    ends = "; ".join(_at_an_end(found)) or "none"
    yield "## Search\n"
    yield (
        "Training reward of the last four iterations, one run a rate; more is better. Where the "
        "best of the four rates was the lowest or the highest, rates beyond it were tried too."
        f" The best is still at an end of what was tried: {ends}.\n"
    )
    for task, rows in found.items():
        rates = sorted({rate for rewards in rows.values() for rate in rewards}, key=float)
        yield f"| {task} | {' | '.join(rates)} |"
        yield f"|---|{'---:|' * len(rates)}"
        for method, rewards in rows.items():
            best = max(rewards.values())
            cells = {
                rate: f"**{r:.3f}**" if r == best else f"{r:.3f}" for rate, r in rewards.items()
            }
            yield f"| {method} | {' | '.join(cells.get(rate, NONE) for rate in rates)} |"
        yield ""


def _at_an_end(found: Found) -> Iterator[str]:
    """The rows whose best rate is the lowest or the highest that was tried."""
    for task, rows in found.items():
        for method, rewards in rows.items():
            rates = sorted(rewards, key=float)
            if max(rewards, key=lambda rate: rewards[rate]) in (rates[0], rates[-1]):
                yield f"{method} on {task}"


def passes(entries: Sequence[Entry]) -> list[str]:
    """A paragraph on the forward passes of a run; none where none are counted."""
    made = [entry.nfe[-1] for entry in entries if entry.nfe]
    if not made:
        return []
    return [f"A run makes {min(made):,.0f} to {max(made):,.0f} forward passes.", ""]


def verdicts(entries: Sequence[Entry]) -> Iterator[str]:
    """A table of the pairs of methods that the runs decide, on each task and over all tasks."""
    yield (
        f"All pairs of methods with at least {MIN_SEEDS} seeds in common are compared, paired by"
        " seed, by Student's t with Holm's correction for the pairs of a task; decided, at 5 %, are"
        " these alone:"
    )
    yield from ["", "| task | pairs | decided | ahead | behind |", "|---|---:|---:|---|---|"]
    tasks = [*dict.fromkeys(entry.task for entry in entries)]
    for name, own in [*((task, [task]) for task in tasks), ("mean of the tasks", tasks)]:
        count, ahead = decided(entries, own)
        together: dict[str, list[str]] = {}
        for method, others in ahead.items():
            together.setdefault("; ".join(others), []).append(method)
        head = f"| {name} | {count} | {sum(map(len, ahead.values()))}"
        for others, methods in together.items() or [(NONE, [NONE])]:
            yield f"{head} | {'; '.join(methods)} | {others} |"
            head = "| | |"


def decided(entries: Sequence[Entry], tasks: Sequence[str]) -> tuple[int, dict[str, list[str]]]:
    """The number of pairs that are tested by their mean gains on tasks; by method, the others that
    it is ahead of.
    """
    gains = {(e.method, e.task, e.seed): e.gain for e in entries}
    methods = [place.method for place in ranking(entries)]
    means = {
        method: {
            seed: sum(gains[method, task, seed] for task in tasks) / len(tasks)
            for seed in {e.seed for e in entries}
            if all((method, task, seed) in gains for task in tasks)
        }
        for method in methods
    }
    known: dict[tuple[str, str], Evidence] = {}
    for one, other in combinations(methods, 2):
        found = paired_difference(means[one], means[other])
        if found.seeds >= MIN_SEEDS:
            known[one, other] = greater(found)
    ahead: dict[str, list[str]] = {}
    adjusted = holm([evidence.p for evidence in known.values()])
    for (pair, evidence), p in zip(known.items(), adjusted, strict=True):
        if (said := verdict(evidence, p)) != "undecided":
            first, second = pair if said == "agree" else pair[::-1]
            ahead.setdefault(first, []).append(second)
    return len(known), ahead


if __name__ == "__main__":
    main()
