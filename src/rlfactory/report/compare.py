"""Two runs side by side: in what they differ, and what that did to the same prompts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlfactory.problems import PlanError, Problem
from rlfactory.report.differences import QUIET, shown
from rlfactory.report.discover import is_run
from rlfactory.report.markdown import markdown_table
from rlfactory.report.read import Damaged, Run, read_run
from rlfactory.report.samples import responses
from rlfactory.report.side_by_side import draw_pairs
from rlfactory.report.table import NONE, Words, evaluations
from rlfactory.report.terminal import Terminal
from rlfactory.run.atomic import write_text
from rlfactory.run.folder import RunFolder
from rlfactory.run.format import clock, number
from rlfactory.run.scores import Scores
from rlfactory.run.statistics import paired_change
from rlfactory.sameness import differences

FILE, PICTURE = "compare.md", "compare.png"


@dataclass(frozen=True)
class Side:
    """A run and its evaluations, the first and the last."""

    name: str
    run: Run
    before: Scores | None
    after: Scores | None


Pair = tuple[Side, Side]


def sides(first: Path, second: Path) -> Pair:
    """Both runs; PlanError where one is none, or they draw different kinds of samples."""
    problems = [
        Problem(str(path), "is no run folder", f"rlfactory report {path}")
        for path in (first, second)
        if not is_run(path)
    ]
    if problems:
        raise PlanError(problems)
    names = _names(first, second)
    pair = _side(names[0], first), _side(names[1], second)
    kinds = [side.run.media for side in pair]
    if None not in kinds and kinds[0] != kinds[1]:
        message = f"{first} draws {kinds[0]} and {second} {kinds[1]}: nothing can be compared"
        raise PlanError([Problem("compare", message)])
    return pair


def print_comparison(pair: Pair) -> None:
    """Print the tables of `tables`."""
    terminal = Terminal()
    terminal.heading(f"{pair[0].name} and {pair[1].name}")
    for title, words in tables(pair).items():
        terminal.table(words, title)
    terminal.notes([*notes(pair)])


def write_comparison(pair: Pair, folder: Path) -> list[Path]:
    """Write compare.md, and compare.png of pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"# {pair[0].name} and {pair[1].name}"]
    for title, words in tables(pair).items():
        if words is not None:
            lines += ["", f"## {title}", "", *markdown_table(words)]
    lines += ["", *(f"- {note}" for note in notes(pair))]
    runs = [(side.name, side.run.path) for side in pair]
    prompts = next((side.after.prompts for side in pair if side.after is not None), [])
    picture = draw_pairs(runs, prompts, folder / PICTURE)
    if picture is not None:
        lines += ["", "## Samples", "", f"![the same prompts, a run a column]({picture.name})"]
    write_text(folder / FILE, "\n".join(lines) + "\n")
    return [folder / FILE, *([picture] if picture is not None else [])]


def tables(pair: Pair) -> dict[str, Words | None]:
    """By title: configuration, held-out scores, cost and responses; None where there is nothing."""
    return {
        "Configuration": _configuration(pair),
        "Held-out scores": _scores(pair),
        "Cost": _cost(pair),
        "Responses": _responses(pair),
    }


def notes(pair: Pair) -> Iterator[str]:
    """What to mind."""
    first, second = pair
    if not differences(first.run.config, second.run.config):
        yield "The configurations are the same."
    if _paired(pair):
        yield "The intervals are 95 % bootstraps of the difference, paired by prompt."
    elif first.after is not None and second.after is not None:
        yield "The held-out prompts are not the same, so there are no pairs and no intervals."
    for side in pair:
        if side.run.status != "done":
            yield f"{side.name} is not done ({side.run.status})."


def _side(name: str, path: Path) -> Side:
    try:
        run = read_run(path, ["time"])
        kept = sorted(p for p in RunFolder(path).evaluations.glob("*.json") if p.stem.isdigit())
        scores = [Scores.load(p) for p in kept]
    except Damaged as error:
        raise PlanError([Problem(str(path), f"is damaged: {error}")]) from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise PlanError([Problem(str(path), f"its evaluations can't be read: {error}")]) from error
    return Side(name, run, scores[0] if scores else None, scores[-1] if scores else None)


def _names(first: Path, second: Path) -> tuple[str, str]:
    """The folders' names, with as much of the way there as tells them apart."""
    one, other = first.absolute().parts, second.absolute().parts
    for length in range(1, max(len(one), len(other)) + 1):
        if one[-length:] != other[-length:]:
            return "/".join(one[-length:]), "/".join(other[-length:])
    return first.name, second.name


def _configuration(pair: Pair) -> Words | None:
    found = differences(pair[0].run.config, pair[1].run.config)
    hidden = {*QUIET} - {"seed"}
    lines = [[k, shown(a), shown(b)] for k, a, b in found if k.partition(".")[0] not in hidden]
    heads = ["key", *_heads(pair)]
    return Words(heads, lines, frozenset(heads)) if lines else None


def _paired(pair: Pair) -> bool:
    first, second = pair[0].after, pair[1].after
    return first is not None and second is not None and first.prompts == second.prompts


def _scores(pair: Pair) -> Words | None:
    """Each score that both have: before and after training, and the difference after it."""
    first, second = pair[0].after, pair[1].after
    if first is None or second is None:
        return None
    names = [name for name in first.values if name in second.values]
    heads = [f"{head} {moment}" for head in _heads(pair) for moment in ("before", "after")]
    heads = ["score", *heads, "difference", "95 % interval", "n"]
    lines = [[name, *_means(pair, name), *_difference(pair, name)] for name in names]
    return Words(heads, lines) if lines else None


def _means(pair: Pair, name: str) -> list[str]:
    scores = [scores for side in pair for scores in (side.before, side.after)]
    return [NONE if s is None else number(s.means().get(name, float("nan"))) for s in scores]


def _difference(pair: Pair, name: str) -> list[str]:
    first, second = pair[0].after, pair[1].after
    assert first is not None
    assert second is not None
    if not _paired(pair):
        gap = second.means()[name] - first.means()[name]
        return [number(gap, sign=True), NONE, NONE]
    change = paired_change(first.values[name], second.values[name])
    interval = f"{number(change.low, sign=True)} … {number(change.high, sign=True)}"
    return [number(change.difference, sign=True), interval, str(change.count)]


def _cost(pair: Pair) -> Words:
    rows = {
        "status": [side.run.status for side in pair],
        "iterations": [str(side.run.iterations) for side in pair],
        "time": [_last(side.run, "time", clock) for side in pair],
        "NFE": [_last(side.run, "nfe/total", evaluations) for side in pair],
        "KL to the reference": [_last(side.run, "kl/reference", number) for side in pair],
    }
    kept = [[name, *told] for name, told in rows.items() if {*told} != {NONE}]
    return Words(["", *_heads(pair)], kept)


def _last(run: Run, name: str, tell: object) -> str:
    series = run.series.get(name)
    assert callable(tell)
    return NONE if series is None else str(tell(float(series[1][-1])))


def _responses(pair: Pair) -> Words | None:
    """What both wrote last to the prompts that they share."""
    first, second = ({prompt: after for prompt, _, after in responses(s.run.path)} for s in pair)
    lines = [[prompt, first[prompt], second[prompt]] for prompt in first if prompt in second]
    heads = ["prompt", *_heads(pair)]
    return Words(heads, lines, frozenset(heads)) if lines else None


def _heads(pair: Sequence[Side]) -> list[str]:
    return [side.name for side in pair]
