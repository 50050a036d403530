"""A claim with its verdict, and its file."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from rlfactory.report.verdicts import Verdict
from rlfactory.run.atomic_write import write_text
from rlfactory.sweep.claims import Claim
from rlfactory.utils.data_files import read_json


@dataclass(frozen=True)
class ClaimResult:
    """A claim with its verdict.

    Attributes:
        reason: why no test was made; empty where one was.
        difference, low, high: of the two compared rows with its 95 % interval, in the column's
            unit; of an order, of the step that is least clear. None where unknown.
        p: of the verdict in either direction, adjusted by Holm's method for the page's claims.
        seeds: that both rows have.
        prompts: of a seed's evaluation; 1 for a number that is no mean over prompts.
    """

    claim: Claim
    comparison: str
    column: str
    verdict: Verdict
    reason: str = ""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    seeds: int = 0
    prompts: int = 0
    digits: int = 3


class _Content(TypedDict):
    """What the file holds."""

    claims: list[ClaimResult]


CLAIMS_FILE = "claims.json"


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
