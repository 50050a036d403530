"""The verdicts on a sweep's claims, from the scores of its runs; as a table, and as a file."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypedDict

import numpy as np

from rlfactory.report.measure import before, measured, metric_of
from rlfactory.report.read import RunRecord, prompt_scores
from rlfactory.report.report import ClaimResult
from rlfactory.report.run_groups import Group
from rlfactory.report.statistics import CONFIDENCE, t_quantile
from rlfactory.report.text_table import NONE, Section, TextTable, joined
from rlfactory.report.verdicts import (
    MIN_SEEDS,
    Evidence,
    MeanDifference,
    SeedScores,
    all_of,
    constant,
    difference,
    equal,
    greater,
    holm,
    interval,
    less,
    verdict,
)
from rlfactory.run.atomic_write import write_json
from rlfactory.sweep.table import BEFORE, Claim, Column, nested
from rlfactory.utils.data_files import read_json
from rlfactory.utils.text import plural

Measured = Mapping[int, SeedScores]


def claim_results(
    claims: Sequence[Claim], columns: Sequence[Column], groups: Sequence[Group], size: str
) -> list[ClaimResult]:
    """The verdict on each claim of a sweep, corrected for those of them that could be tested."""
    by_name = {group.name: group for group in groups}
    found = [_estimated(claim, claim_column(claim, columns), by_name, size) for claim in claims]
    adjusted = iter(holm([evidence.p for _, evidence in found if evidence is not None]))
    results = []
    for result, evidence in found:
        if evidence is not None:
            p = next(adjusted)
            result = replace(result, p=p, verdict=verdict(evidence, p))
        results.append(result)
    return results


def claim_column(claim: Claim, columns: Sequence[Column]) -> Column:
    """The column that decides a claim: a stand-in's, where the size has one for the published.

    One without a measure, if the table does not have it: the claim is newer than the runs.
    """
    known = {column.name: column for column in columns}
    names = [claim.score, f"{claim.score}_stand_in", f"{claim.stand_in}_stand_in"]
    named = [known[name] for name in names if name in known]
    measured_ones = [column for column in named if column.measure]
    return next(iter([*measured_ones, *named]), Column(claim.score, claim.score, ""))


def _estimated(
    claim: Claim, column: Column, groups: Mapping[str, Group], size: str
) -> tuple[ClaimResult, Evidence | None]:
    """A claim's difference, undecided as yet, and the evidence on it if there is enough data."""
    margin = claim.margin_of(size)
    words = comparison(claim, column, margin)
    blank = ClaimResult(claim, words, column.label, "undecided", digits=column.digits)
    if reason := _untested(claim, column, groups):
        return replace(blank, reason=reason), None
    estimates = [_difference(groups, pair, column) for pair in claim.pairs]
    seeds = min(estimate.seeds for estimate in estimates)
    if not seeds:
        named = [name for pair in claim.pairs for name in pair if name in groups]
        unfinished = [f"no run of {n} is done" for n in named if not groups[str(n)].runs]
        reasons = [*unfinished, f"{column.label} is not measured in both rows"]
        return replace(blank, reason=reasons[0]), None
    if not all(np.isfinite([e.value, *(interval(e) or ())]).all() for e in estimates):
        return replace(blank, reason=f"numbers of {column.label} are too large"), None
    test = equal if claim.kind == "equal" else greater if rises(claim, column) else less
    parts = [test(estimate, margin) for estimate in estimates] if seeds > 1 else []
    least = max(range(len(parts)), key=lambda i: parts[i].claim) if parts else 0
    found = estimates[least]
    low, high = interval(found) or (None, None)
    shown = replace(
        blank, difference=found.value, low=low, high=high, seeds=seeds, prompts=found.prompts
    )
    if seeds < MIN_SEEDS:
        return replace(shown, reason=plural(seeds, "seed")), None
    return shown, all_of(parts)


def _untested(claim: Claim, column: Column, groups: Mapping[str, Group]) -> str:
    """Why a claim can't be tested in this size; empty if it can."""
    named = [first for first, _ in claim.pairs] + [claim.pairs[-1][1]]
    for name in dict.fromkeys(n for n in named if isinstance(n, str) and n != BEFORE):
        if name not in groups:
            varies = any(group.startswith(f"{name}, ") for group in groups)
            return f"{name} {'varies in more than the seed' if varies else 'is not in the table'}"
        if not groups[name].members:
            return f"{name} is not run"
    if not column.measure:
        return f"{column.label} is not measured"
    if claim.about_quality and column.better not in ("higher", "lower"):
        return f"nothing says whether more or less of {column.label} is better"
    return ""


def _difference(
    groups: Mapping[str, Group], pair: tuple[str, str | float], column: Column
) -> MeanDifference:
    """The first row of a pair less the second."""
    first, second = pair
    ours = seed_scores(groups[first], column)
    if not isinstance(second, str):
        return difference(ours, constant(second, ours))
    other = replace(groups[first], untrained=True) if second == BEFORE else groups[second]
    return difference(ours, seed_scores(other, column))


def comparison(claim: Claim, column: Column, margin: float) -> str:
    """The comparison in signs: `V-GRPO > NFT`."""
    if claim.order is not None:
        return (" > " if rises(claim, column) else " < ").join(claim.order)
    first, second = claim.pairs[0]
    shown = second if isinstance(second, str) else f"{second:g}"
    if claim.equal is not None:
        return f"{first} = {shown} ± {margin:g}"
    more = rises(claim, column)
    if claim.kind == "no_worse":
        return f"{first} ≥ {shown} − {margin:g}" if more else f"{first} ≤ {shown} + {margin:g}"
    return f"{first} {'>' if more else '<'} {shown}"


def rises(claim: Claim, column: Column) -> bool:
    """Whether a claim says that the score of its first row is the larger one."""
    return claim.kind == "higher" or (claim.kind != "lower" and column.better != "lower")


def seed_scores(group: Group, column: Column) -> dict[int, SeedScores]:
    """A row's scores in a column by seed, scaled: one a prompt where an evaluation has them."""
    own = before(column) if group.untrained else column
    scores = {}
    for run in group.runs:
        if (number := measured(run.stages, own)) is not None:
            stage = run.stages[0 if own.measure.startswith("before/") else -1]
            found = _of_evaluation(stage, own) or SeedScores((), np.array([number]))
            scores[run.seed] = replace(found, values=column.scale * found.values)
    return scores


def _of_evaluation(run: RunRecord, column: Column) -> SeedScores | None:
    """The scores of each prompt; None for numbers that are no mean over an evaluation's prompts.

    None also where the file of scores is missing or damaged: the run then counts by its mean.
    """
    kind, _, name = column.measure.partition("/")
    metric = metric_of(run, column)
    if kind not in ("eval", "before") or metric is None:
        return None
    at = int(run.series[metric][0][0 if kind == "before" else -1])
    found = prompt_scores(run, name, at)
    return None if found is None else SeedScores(tuple(found[0]), found[1])


CLAIMS_FILE = "claims.json"
HEADS = ["claim", "source", "compared", "score", "difference", "95 % interval", "p", "n", "verdict"]
NOTE = (
    "Verdicts are computed: a claim agrees or disagrees where its p value, corrected by Holm's "
    "method for the claims of this page, is at most 0.05. Intervals, of single claims, are by a "
    "hierarchical bootstrap over seeds and prompts, with Student's t for the number of seeds. "
    f"With fewer than {MIN_SEEDS} seeds a claim is undecided, whatever its numbers are. Detectable "
    "is a difference that as many seeds would decide in about four of five repetitions."
)


def claim_sections(results: Sequence[ClaimResult]) -> list[Section]:
    """The section on the claims of a table's source; none without any."""
    table = claim_table(results)
    return [Section("Claims", table, f"{counts_text(results)}. {NOTE}")] if table else []


def claim_table(results: Sequence[ClaimResult]) -> TextTable | None:
    """A line for each claim; None without claims."""
    lines, tested = [], sum(result.p is not None for result in results)
    for r in results:
        p = NONE if r.p is None else "< 0.001" if r.p < 0.001 else f"{r.p:.3f}"
        interval = joined([r.low, r.high], f"+.{r.digits}f")
        numbers = [difference_text(r), interval, p, str(r.seeds)]
        words = [r.claim.text, r.claim.source or NONE, r.comparison, r.column]
        found = verdict_text(r)
        if r.verdict == "undecided" and (least := detectable(r, tested)) is not None:
            found = f"{found}; detectable: {least:.{r.digits}f}"
        lines.append([*words, *numbers, found])
    left = frozenset({"source", "compared", "score", "verdict"})
    return TextTable(HEADS, lines, left) if lines else None


def detectable(result: ClaimResult, tested: int) -> float | None:
    """The distance from its bound at which a difference of this error would be decided, among the
    claims that are `tested` with it, in about four of five repetitions; None for one that is not.
    """
    if result.p is None or result.low is None or result.high is None:
        return None
    freedom = result.seeds - 1
    error = (result.high - result.low) / 2 / t_quantile(freedom)
    threshold = t_quantile(freedom, 1 - (1 - CONFIDENCE) / tested)
    return error * (threshold + t_quantile(freedom, 2 * 0.8 - 1))


def difference_text(result: ClaimResult) -> str:
    """The difference of the compared rows; a dash where it is unknown."""
    return joined([result.difference], f"+.{result.digits}f")


def verdict_text(result: ClaimResult) -> str:
    """The verdict, with the reason where no test was made."""
    return f"{result.verdict}: {result.reason}" if result.reason else result.verdict


def counts_text(results: Sequence[ClaimResult]) -> str:
    """How many claims have which verdict."""
    counts = Counter(result.verdict for result in results)
    words = [f"{counts[word]} {word}" for word in ("agree", "disagree", "undecided")]
    return f"{plural(len(results), 'claim')}: {', '.join(words)}"


class _Content(TypedDict):
    """The content of the file; a stored one has more."""

    claims: list[ClaimResult]


def write_claims(results: Sequence[ClaimResult], path: Path) -> Path:
    """Write the results as JSON, numbers with all digits."""
    plain = [asdict(result) for result in results]
    for node in plain:
        node["claim"] = {k: v for k, v in node["claim"].items() if v is not None}
    write_json(path, {"claims": plain}, allow_nan=False)
    return path


def read_claims(path: Path) -> list[ClaimResult]:
    """Read what `write_claims` wrote."""
    content = read_json(path, _Content, remedy="write it again with rlfactory report")
    results: list[ClaimResult] = nested(list[ClaimResult], content["claims"])
    return results
