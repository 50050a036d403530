"""Verdicts on a sweep's claims, from runs as training leaves them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rlfactory.report.claims import (
    claim_column,
    claim_results,
    claim_table,
    counts_text,
    detectable,
    read_claims,
    write_claims,
)
from rlfactory.report.command import write
from rlfactory.report.discover import report_of_sweep
from rlfactory.report.read import RunRecord
from rlfactory.report.report import ClaimResult, Report
from rlfactory.report.run_groups import Group
from rlfactory.sweep.table import Claim, Column, Job, Row, Table

WINS = Claim("NFT wins", "shapes", "Table 1", better="NFT", than="GRPO")
LOSES = Claim("GRPO wins", "shapes", better="GRPO", than="NFT")
LEARNS = Claim("GRPO learns", "shapes", better="GRPO", than="before")
SAME = Claim("they are level", "shapes", equal=["NFT", "GRPO"], margin=0.05)
ABSENT = Claim("FLUX wins", "shapes", better="FLUX.1", than="NFT")
ORDER = Claim("the base is last", "shapes", order=["NFT", "GRPO", "base"])
UNMEASURED = Claim("and by HPS", "hps", better="NFT", than="GRPO")
PASSES = Claim("in 1000 steps", "steps", equal=["NFT", 1000], margin=10)
ALL = [WINS, LOSES, LEARNS, SAME, ABSENT, ORDER, UNMEASURED, PASSES]

Made = Callable[..., Report]


@pytest.fixture
def report(tmp_path: Path, make_run: Callable[..., Path], make_sweep: Callable[..., Path]) -> Made:
    """Makes a sweep of several seeds with claims, and its report."""

    def of(seeds: int, claims: list[Claim], spread: float = 0.02) -> Report:
        folder = tmp_path / f"sweep-{seeds}"
        jobs = [
            Job(f"{algo.lower()}-s{seed}", algo, f"{algo.lower()}-s{seed}", [], {"seed": seed})
            for algo in ("NFT", "GRPO")
            for seed in range(seeds)
        ]
        columns = [
            Column("shapes", "Shapes", "eval/shapes", scale=2.0),
            Column("hps", "HPS", ""),
            Column("steps", "Steps", "iterations", better="lower"),
        ]
        rows = [Row("NFT"), Row("GRPO"), Row("FLUX.1"), Row("base", before="GRPO")]
        if not folder.exists():
            make_sweep(folder, columns=columns, rows=rows, jobs=jobs)
            for job in jobs:
                seed = job.axes["seed"]
                gain = (0.4 if job.row == "NFT" else 0.3) + spread * (seed % 3)
                gain -= spread * (seed % 2) * (job.row == "NFT")
                make_run(folder / job.folder, seed=seed, before=0.2, after=0.2 + gain)
        return report_of_sweep(replace(Table.load(folder), claims=claims), folder)

    return of


def by_text(report: Report) -> dict[str, ClaimResult]:
    return {result.claim.text: result for result in report.claims}


def test_five_seeds_decide_what_is_clear(report: Made) -> None:
    found = by_text(report(6, ALL))
    verdicts = {text: result.verdict for text, result in found.items()}
    assert verdicts == {
        "NFT wins": "agree",
        "GRPO wins": "disagree",
        "GRPO learns": "agree",
        "they are level": "disagree",
        "FLUX wins": "undecided",
        "the base is last": "agree",
        "and by HPS": "undecided",
        "in 1000 steps": "disagree",
    }
    wins = found["NFT wins"]
    assert wins.difference == pytest.approx(2 * (0.1 - 0.01))
    assert wins.low is not None
    assert wins.high is not None
    assert wins.low < 0.18 < wins.high
    assert (wins.seeds, wins.prompts) == (6, 3)
    assert found["FLUX wins"].reason == "FLUX.1 is not run"
    assert found["and by HPS"].reason == "HPS is not measured"
    assert found["in 1000 steps"].difference == 4 - 1000


def test_fewer_than_five_seeds_are_undecided_whatever_the_numbers_are(report: Made) -> None:
    found = by_text(report(4, ALL, spread=0.001))
    assert {result.verdict for result in found.values()} == {"undecided"}
    assert found["NFT wins"].reason == "4 seeds"
    assert found["NFT wins"].difference is not None
    assert found["NFT wins"].p is None


def test_one_seed_has_a_difference_and_no_interval(report: Made) -> None:
    (only,) = report(1, [WINS]).claims
    assert (only.reason, only.low) == ("1 seed", None)
    assert only.difference == pytest.approx(0.2)


def test_runs_without_differences_are_undecided(report: Made) -> None:
    claim = Claim("as long", "steps", better="NFT", than="GRPO")
    same = Claim("the same length", "steps", equal=["NFT", "GRPO"], margin=1)
    verdicts = [result.verdict for result in report(5, [claim, same]).claims]
    assert verdicts == ["undecided", "agree"]


@pytest.mark.filterwarnings("ignore:overflow")
def test_numbers_that_are_too_large_are_undecided(report: Made, tmp_path: Path) -> None:
    huge = Claim("NFT is there", "shapes", equal=["NFT", 1e308], margin=1e308)
    made = report(6, [huge])
    (result,) = made.claims
    assert (result.verdict, result.reason) == ("undecided", "numbers of Shapes are too large")
    write_claims(made.claims, tmp_path / "claims.json")


def test_more_claims_ask_for_more_evidence(report: Made) -> None:
    alone = report(5, [WINS, ABSENT, UNMEASURED], spread=0.06).claims[0]
    among = report(5, [WINS, LOSES, LEARNS, SAME], spread=0.06).claims[0]
    assert alone.p is not None
    assert among.p is not None
    assert alone.p < among.p <= 4 * alone.p


def test_a_stand_in_decides_where_the_published_score_is_not_measured() -> None:
    published, stand_in = Column("hps", "HPS", ""), Column("hps_stand_in", "kB", "eval/kb")
    assert claim_column(UNMEASURED, [published, stand_in]) == stand_in
    assert claim_column(UNMEASURED, [stand_in]) == stand_in
    assert claim_column(UNMEASURED, [published]) == published
    measured = Column("hps", "HPS", "eval/hps")
    assert claim_column(UNMEASURED, [measured]) == measured
    assert claim_column(UNMEASURED, []).measure == ""


def test_the_stand_in_of_another_column_decides_where_a_claim_names_it() -> None:
    published = Column("hps", "HPS", "")
    own, other = Column("hps_stand_in", "kB", "eval/kb"), Column("sum_stand_in", "sum", "eval/sum")
    claim = replace(UNMEASURED, stand_in="sum")
    assert claim_column(claim, [published, other]) == other
    assert claim_column(claim, [published, own, other]) == own
    assert claim_column(UNMEASURED, [published, other]) == published


def test_a_score_of_which_nothing_is_better_decides_no_claim_of_quality() -> None:
    column = Column("shapes", "Shapes", "eval/shapes", better="neither")
    rows = [Group(name, [RunRecord(Path(), "failed", {})]) for name in ("NFT", "GRPO")]
    (found,) = claim_results([WINS], [column], rows, "tiny")
    assert found.reason == "nothing says whether more or less of Shapes is better"
    (found,) = claim_results([SAME], [column], rows, "tiny")
    assert found.reason == "no run of NFT is done"


def test_less_is_better_where_the_column_says_so(report: Made) -> None:
    claim = Claim("it is as short", "steps", no_worse="NFT", than=4, margin=1)
    (found,) = report(5, [claim]).claims
    assert (found.verdict, found.comparison) == ("agree", "NFT ≤ 4 + 1")
    (found,) = report(5, [replace(claim, than=2)]).claims
    assert found.verdict == "disagree"


def test_a_run_without_its_file_of_scores_counts_by_its_mean(report: Made, tmp_path: Path) -> None:
    before = report(5, [WINS]).claims[0]
    (tmp_path / "sweep-5" / "nft-s0" / "evaluations" / "000004.json").write_text("{")
    (tmp_path / "sweep-5" / "nft-s1" / "evaluations" / "000004.json").unlink()
    after = report(5, [WINS]).claims[0]
    assert after.difference == pytest.approx(before.difference)
    assert (before.prompts, after.prompts, after.seeds) == (3, 1, 5)


@pytest.mark.slow
def test_the_page_and_the_file_have_the_claims(report: Made, tmp_path: Path) -> None:
    made = report(5, ALL)
    write(made, tmp_path / "out", ["markdown", "html", "json"])
    page = (tmp_path / "out" / "report.md").read_text()
    assert "## Claims" in page
    assert "8 claims: 3 agree, 3 disagree, 2 undecided" in page
    assert "| undecided: FLUX.1 is not run |" in page
    assert "NFT > GRPO" in page
    assert 'id="claims"' in (tmp_path / "out" / "report.html").read_text()
    assert read_claims(tmp_path / "out" / "claims.json") == made.claims
    stored = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert stored["claims"][0]["verdict"] == "agree"


@pytest.mark.slow
def test_a_table_without_claims_has_no_section(report: Made, tmp_path: Path) -> None:
    made = report(2, [])
    assert claim_table(made.claims) is None
    write(made, tmp_path / "out", ["markdown", "html", "json"])
    assert "## Claims" not in (tmp_path / "out" / "report.md").read_text()
    assert 'id="claims"' not in (tmp_path / "out" / "report.html").read_text()
    assert not (tmp_path / "out" / "claims.json").exists()


def test_an_undecided_claim_says_what_could_have_been_decided() -> None:
    made = ClaimResult(
        WINS,
        "NFT > GRPO",
        "Shapes",
        "undecided",
        difference=0.1,
        low=-1.0,
        high=1.2,
        p=0.9,
        seeds=5,
    )
    # t of 4 degrees of freedom: 2.776 at 5 %, 3.495 at 2.5 %, 0.941 at 80 %; half a width is 1.1
    assert detectable(made, 1) == pytest.approx(1.1 / 2.776 * (2.776 + 0.941), abs=1e-3)
    assert detectable(made, 2) == pytest.approx(1.1 / 2.776 * (3.495 + 0.941), abs=1e-3)
    assert detectable(replace(made, p=None), 1) is None
    decided = replace(made, verdict="agree")
    assert [line[-1] for line in claim_table([made, decided, replace(made, p=None)]).lines] == [
        "undecided; detectable: 1.758",
        "agree",
        "undecided",
    ]


def test_an_undecided_result_is_stored_and_read(tmp_path: Path) -> None:
    result = ClaimResult(WINS, "NFT > GRPO", "Shapes", "undecided", "1 seed", seeds=1)
    assert read_claims(write_claims([result], tmp_path / "claims.json")) == [result]
    assert counts_text([result]) == "1 claim: 0 agree, 0 disagree, 1 undecided"
