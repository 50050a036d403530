"""The pages of sweeps in the site, and the table of docs/results/README.md.

python scripts/docs/sweep_results.py outputs/sweeps/*-tiny    # store what these runs gave

docs/results/NAME.json has the main table of a sweep's tiny form, the verdicts on the claims in the
sweep's file, and the overrides, seeds, commits and machines of the runs; NAME.png has its curves.
A comparison that was added since is undecided, and so are all where the sweep's tiny form is
another one now.
"""

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

import hacking

from rlfactory.config.problems import override_key
from rlfactory.report.claims import (
    claim_column,
    claim_sections,
    comparison,
    difference_text,
    read_claims,
    verdict_text,
    write_claims,
)
from rlfactory.report.command import write
from rlfactory.report.discover import report_of_sweep
from rlfactory.report.report import ClaimResult, Report
from rlfactory.report.report_tables import main_table
from rlfactory.report.summary import provenance
from rlfactory.report.text_table import TextTable, markdown_sections, markdown_table
from rlfactory.report.writers import about_lines
from rlfactory.run.folder import RunFolder
from rlfactory.sweep.jobs import columns_of, jobs_of, seeds_of, share_stages
from rlfactory.sweep.sweep_file import SweepFile, file_of, read_sheet, sweeps
from rlfactory.sweep.table import Claim, Job, Table
from rlfactory.utils.text import plain

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SIZE = "tiny"
Form = Mapping[str, Any]
"""Of a sweep's runs: `rows`, the overrides by row; `seeds`; of newer ones, what `made` them."""
OWN_PAGES = ("hacking", "leaderboard")
"""Pages of docs that show the runs of all sweeps whose names begin so."""
NOT_COMPUTED = "not computed from runs yet"
EARLIER = "measured with an earlier form"
EARLIER_LINE = (
    "**Measured with an earlier form of the sweep's file**: other overrides or seeds, so its claims"
    " are undecided."
)


def main() -> None:
    """Store the results of each sweep folder on the command line."""
    for folder in map(Path, sys.argv[1:]):
        name = folder.name.removesuffix(f"-{SIZE}")
        form = {**run_form(folder, name), "made": made_by(folder)}
        publish(current_report(folder, name), name, RESULTS, form)
        print(f"written: {RESULTS / name}.json")


def current_report(folder: Path, name: str) -> Report:
    """The report of runs with what the sweep's file says now of its claims and of what ran."""
    sheet, table = _sheet(name), Table.load(folder)
    about = replace(table.about, ran=sheet.about.ran)
    return report_of_sweep(replace(table, about=about, claims=sheet.claims), folder)


def form_of(jobs: Sequence[Job], searched: Collection[str] = ()) -> Form:
    """The overrides of each row's runs, without the seed and what a search draws, and the seeds."""
    left_out = {"seed", *searched}
    rows: dict[str, list[list[str]]] = {}
    for job in jobs:
        words = sorted(word for word in job.overrides if override_key(word) not in left_out)
        own = rows.setdefault(job.row, [])
        own += [words] if words not in own else []
    return {"rows": rows, "seeds": sorted({int(job.axes["seed"]) for job in jobs})}


def run_form(folder: Path, name: str) -> Form:
    """The form that a folder's runs had."""
    return form_of(Table.load(folder).jobs, _sheet(name).search.keys())


def made_by(folder: Path) -> list[dict[str, str]]:
    """The commits, machines and versions that made a folder's runs, as far as they are known."""
    found: list[dict[str, str]] = []
    for job in Table.load(folder).jobs:
        facts = provenance(RunFolder(folder / job.folder))
        facts.pop("command", None)
        found += [facts] if facts and facts not in found else []
    return found


def form_now(sheet: SweepFile) -> Form:
    """The tiny form as the sweep's file has it."""
    jobs = jobs_of(sheet, SIZE, [], {}, seeds_of(sheet, SIZE))
    return form_of(jobs if sheet.search else share_stages(jobs), sheet.search.keys())


def is_earlier(name: str, results: Path) -> bool:
    """Whether the runs of a page had other overrides or seeds than the sweep's file has now."""
    stored = results / f"{name}.json"
    if not stored.is_file():
        return False
    form, now = json.loads(stored.read_text(encoding="utf-8"))["form"], form_now(_sheet(name))
    # a row may have had no run
    return form["seeds"] != now["seeds"] or not form["rows"].items() <= now["rows"].items()


def publish(report: Report, name: str, results: Path, form: Form) -> None:
    """Write NAME.json and NAME.png."""
    results.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        write(report, Path(folder), ["markdown"])
        copyfile(Path(folder) / "curves.png", results / f"{name}.png")
    stored = write_claims(report.claims, results / f"{name}.json")
    shown = main_table(report)
    content = json.loads(stored.read_text(encoding="utf-8")) | {
        "form": form,
        "table": {"heads": shown.heads, "lines": shown.lines, "notes": report.notes},
    }
    stored.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def pages() -> dict[str, str]:
    """The page of each sweep that was run, by its name."""
    return {f"results/{name}.md": page(name, RESULTS) for name in names(RESULTS)}


def page(name: str, results: Path) -> str:
    """A sweep's page: what its file says, its table, and where the form is today's, its claims."""
    sheet = _sheet(name)
    stored = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    table = stored["table"]
    earlier = is_earlier(name, results)
    made = stored["form"].get("made", [])
    parts = [
        f"# {plain(sheet.about.title)} ({SIZE})",
        f"```bash\nrlfactory sweep {name} size={SIZE}\n```",
        *([EARLIER_LINE] if earlier else []),
        "\n".join(about_lines(sheet.about)),
        "\n".join(markdown_table(TextTable(table["heads"], table["lines"]))),
        "\n".join(f"- {plain(note)}" for note in table["notes"]),
        "\n".join(f"- Made by {plain(', '.join(own.values()))}" for own in made),
    ]
    if not earlier:
        parts.append("\n".join(markdown_sections(claim_sections(results_of(name, results)))))
        parts.append(f"## Curves\n\n![curves over training](../../../results/{name}.png)")
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def results_of(name: str, results: Path) -> list[ClaimResult]:
    """The stored result of each claim in the sweep's file.

    Undecided where there is none, or where the runs were of an earlier form.
    """
    stored = results / f"{name}.json"
    known = {_without_words(r.claim): r for r in read_claims(stored)} if stored.is_file() else {}
    sheet = _sheet(name)
    columns = columns_of(sheet, SIZE)
    found = []
    for claim in sheet.claims:
        column = claim_column(claim, columns)
        words = comparison(claim, column, claim.margin_of(SIZE))
        blank = ClaimResult(claim, words, column.label, "undecided", NOT_COMPUTED)
        found.append(replace(known.get(_without_words(claim), blank), claim=claim))
    if is_earlier(name, results):
        return [replace(result, verdict="undecided", reason=EARLIER, p=None) for result in found]
    return found


def _without_words(claim: Claim) -> str:
    """What a claim compares: its sentence and its source may change."""
    return repr(replace(claim, text="", source=""))


def names(results: Path) -> list[str]:
    """The sweeps whose results are stored."""
    return [name for name in sorted(sweeps()) if (results / f"{name}.json").is_file()]


def tested() -> dict[str, list[ClaimResult]]:
    """The result of each claim by sweep, of those whose runs are stored in their present form."""
    known = [name for name in names(RESULTS) if not is_earlier(name, RESULTS)]
    found = {name: results_of(name, RESULTS) for name in known} | hacking.tested()
    return dict(sorted(found.items()))


def decided() -> str:
    """The table of docs/results/README.md: each claim that its runs decide."""
    heads = ["| sweep | claim | source | difference | verdict |", "|---|---|---|---:|---|"]
    lines = [
        f"| `{name}` | {' | '.join(map(plain, _cells(result)))} |"
        for name, results in tested().items()
        for result in results
        if result.verdict != "undecided"
    ]
    return "\n".join([*heads, *lines])


def _cells(result: ClaimResult) -> list[str]:
    claim = result.claim
    return [claim.text, claim.source, difference_text(result), verdict_text(result)]


def state() -> str:
    """How many claims are decided, tested and open, or not tested; and the sweeps without a run."""
    known = tested()
    results = [result for own in known.values() for result in own]
    undecided = [result for result in results if result.verdict == "undecided"]
    open_ = sum(result.seeds > 0 for result in undecided)
    others = [n for n in sorted(sweeps()) if n not in known and not n.startswith(OWN_PAGES)]
    waiting = {name: len(_sheet(name).claims) for name in others}
    claimed = ", ".join(f"`{name}` ({count})" for name, count in waiting.items() if count)
    plans = ", ".join(f"`{name}`" for name, count in waiting.items() if not count)
    decided_ = len(results) - len(undecided)
    untested = f" Not tested, since their runs are to be made: {claimed}." if claimed else ""
    return (
        f"Of the claims of sweeps that were run, {decided_} are decided, {open_} tested and open,"
        f" and {len(undecided) - open_} of rows without a run.{untested}\n\nPlans and presets"
        f" without a claim that a small model could decide, not run: {plans}."
    )


def _sheet(name: str) -> SweepFile:
    return read_sheet(file_of(name))


if __name__ == "__main__":
    main()
