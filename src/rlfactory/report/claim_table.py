"""The claims of a sweep with their verdicts: as a table of text, and as a file."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

from rlfactory.report.report import ClaimResult
from rlfactory.report.table import NONE, TextTable, joined
from rlfactory.report.verdicts import MIN_SEEDS
from rlfactory.run.atomic_write import write_text
from rlfactory.sweep.claims import Claim
from rlfactory.utils.data_files import read_json
from rlfactory.utils.text import plural

CLAIMS_FILE = "claims.json"
HEADS = ["claim", "source", "compared", "score", "difference", "95 % interval", "p", "n", "verdict"]
NOTE = (
    "Verdicts are computed: a claim agrees or disagrees where its p value, corrected by Holm's "
    "method for the claims of this page, is at most 0.05. Intervals, of single claims, are by a "
    "hierarchical bootstrap over seeds and prompts, with Student's t for the number of seeds. "
    f"With fewer than {MIN_SEEDS} seeds a claim is undecided, whatever its numbers are."
)


def claim_table(results: Sequence[ClaimResult]) -> TextTable | None:
    """A line for each claim; None without claims."""
    lines = [
        [
            result.claim.text,
            result.claim.source or NONE,
            result.comparison,
            result.column,
            *_numbers(result),
            verdict_text(result),
        ]
        for result in results
    ]
    left = frozenset({"source", "compared", "score", "verdict"})
    return TextTable(HEADS, lines, left) if lines else None


def _numbers(result: ClaimResult) -> list[str]:
    interval = joined([result.low, result.high], f"+.{result.digits}f")
    p = NONE if result.p is None else "< 0.001" if result.p < 0.001 else f"{result.p:.3f}"
    return [difference_text(result), interval, p, str(result.seeds)]


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
    """What the file holds."""

    claims: list[ClaimResult]


def write_claims(results: Sequence[ClaimResult], path: Path) -> Path:
    """Write the results as JSON, numbers with all digits."""
    content = {"claims": [_plain(result) for result in results]}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")
    return path


def _plain(result: ClaimResult) -> dict[str, Any]:
    claim = {key: value for key, value in asdict(result.claim).items() if value is not None}
    return asdict(result) | {"claim": claim}


def read_claims(path: Path) -> list[ClaimResult]:
    """Read what `write_claims` wrote."""
    content = read_json(path, _Content, remedy="write it again with rlfactory report")
    return [ClaimResult(**(node | {"claim": Claim(**node["claim"])})) for node in content["claims"]]
