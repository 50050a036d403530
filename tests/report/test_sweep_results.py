"""The script that stores the results of sweeps, and the pages that it makes of them."""

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rlfactory.report.claims import read_claims
from rlfactory.run.environment import Environment, record_environment
from rlfactory.run.folder import RunFolder
from rlfactory.sweep.sweep_file import file_of, read_sheet
from rlfactory.sweep.table import Table

DOCS = str(Path(__file__).parents[2] / "scripts" / "docs")
sys.path.insert(0, DOCS)
sweep_results = importlib.import_module("sweep_results")
sys.path.remove(DOCS)

NAME = "nft_beta"
MADE = {"device": "2 × Some CPU", "git commit": "0123abcd", "versions": "torch 2"}
STORED = sweep_results.names(sweep_results.RESULTS)


@pytest.fixture
def results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filled_sweep: Callable[..., Path]
) -> Path:
    """A folder with the results of a sweep, whose rows have the names that its claims need."""
    folder = filled_sweep(tmp_path / f"{NAME}-tiny")
    rows = {"NFT": "beta 0.1, decay 1", "GRPO": "beta 1, decay 1"}
    table = Table.load(folder)
    columns = [replace(column, name="reward") for column in table.columns]
    renamed = [replace(row, name=rows.get(row.name, row.name), claimed={}) for row in table.rows]
    jobs = [replace(job, row=rows[job.row]) for job in table.jobs]
    for job in jobs:
        environment = Environment("Some CPU", 2, {"torch": "2"}, "0123abcd")
        record_environment(RunFolder(folder / job.folder).environment, environment)
    replace(table, rows=renamed, columns=columns, jobs=jobs).save(folder)
    written = tmp_path / "results"
    monkeypatch.setattr(sweep_results, "RESULTS", written)
    monkeypatch.setattr(sys, "argv", ["sweep_results.py", str(folder)])
    form = sweep_results.form_now(read_sheet(file_of(NAME)))
    monkeypatch.setattr(sweep_results, "run_form", lambda *_: form)
    sweep_results.main()
    return written


def test_a_page_says_what_the_file_of_the_sweep_says_now(results: Path) -> None:
    page = sweep_results.page(NAME, results)
    ran = read_sheet(file_of(NAME)).about.ran
    assert f"rlfactory sweep {NAME} size=tiny" in page
    assert f"Run here: {sweep_results.plain(ran)}" in page
    assert f"results/{NAME}.png)" in page
    assert (results / f"{NAME}.png").is_file()


def test_a_page_has_the_rows_and_claims_of_its_runs(results: Path) -> None:
    (claim,) = read_sheet(file_of(NAME)).claims
    made = json.loads((results / f"{NAME}.json").read_text(encoding="utf-8"))["form"]["made"]
    assert made == [MADE]
    (stored,) = read_claims(results / f"{NAME}.json")
    assert (stored.claim, stored.reason) == (claim, "2 seeds")
    assert stored.difference == pytest.approx(0.2)
    page = sweep_results.page(NAME, results)
    assert "\n| beta 0.1, decay 1 | " in page
    assert page.count("## Claims") == 1
    assert "- Made by 2 × Some CPU, 0123abcd, torch 2" in page
    assert "| +0.200 | +0.200 … +0.200 | – | 2 | undecided: 2 seeds |" in page


def test_a_claim_that_is_newer_than_the_runs_is_undecided(results: Path) -> None:
    (results / f"{NAME}.json").unlink()
    (found,) = sweep_results.results_of(NAME, results)
    assert (found.verdict, found.reason) == ("undecided", sweep_results.NOT_COMPUTED)


def test_runs_of_another_form_decide_nothing(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not sweep_results.is_earlier(NAME, results)
    stored = json.loads((results / f"{NAME}.json").read_text(encoding="utf-8"))
    stored["claims"][0] |= {"verdict": "agree", "reason": ""}
    stored["form"]["seeds"] = [0]
    (results / f"{NAME}.json").write_text(json.dumps(stored), encoding="utf-8")
    (found,) = sweep_results.results_of(NAME, results)
    assert (found.verdict, found.reason) == ("undecided", sweep_results.EARLIER)
    page = sweep_results.page(NAME, results)
    assert page.count(sweep_results.EARLIER_LINE) == 1
    assert "## Claims" not in page


@pytest.mark.parametrize(("row", "earlier"), [(None, False), ([["algo=grpo"]], True)])
def test_a_row_that_has_no_run_is_no_other_form(row: object, earlier: bool, results: Path) -> None:
    stored = json.loads((results / f"{NAME}.json").read_text(encoding="utf-8"))
    rows = stored["form"]["rows"]
    name, _ = rows.popitem()
    rows |= {name: row} if row else {}
    (results / f"{NAME}.json").write_text(json.dumps(stored), encoding="utf-8")
    assert sweep_results.is_earlier(NAME, results) == earlier


def test_the_form_has_no_seed_and_nothing_that_a_search_draws() -> None:
    words = ["algo=grpo", "seed=3", "optimizer.lr=1e-4"]
    job = sweep_results.Job("a", "row", "a", words, {"seed": 3})
    found = sweep_results.form_of([job, job], ["optimizer.lr"])
    assert found == {"rows": {"row": [["algo=grpo"]]}, "seeds": [3]}


def test_the_readme_has_each_decided_claim() -> None:
    readme = (sweep_results.RESULTS / "README.md").read_text(encoding="utf-8")
    assert sweep_results.decided() in readme, "generated.py sweep_results.decided prints it"


def test_every_stored_sweep_has_a_page() -> None:
    pages = sweep_results.pages()
    assert {*pages} == {f"results/{name}.md" for name in STORED}
    for name, text in pages.items():
        rows = [line for line in text.splitlines() if line.startswith("| ")]
        assert text.startswith("# "), name
        assert len(rows) > 1, name


@pytest.mark.parametrize("name", STORED)
def test_what_ran_says_nothing_of_agreement(name: str) -> None:
    ran = read_sheet(file_of(name)).about.ran.lower()
    words = ("as in the", "as told", "as is said", "not as", "agree", "better", "worse", "ahead")
    assert not [word for word in words if word in ran]
