"""Write the pages of docs/results, and its README: one table of all claims with their verdicts.

python scripts/docs/sweep_results.py outputs/sweeps/*-tiny    # pages of these runs, then as below
python scripts/docs/sweep_results.py                          # from what docs/results stores

A page has the table and curves of a sweep's tiny form, as it was run; NAME.json beside it has the
verdicts on the claims in the sweep's file. A comparison that was added since is undecided.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from rlfactory.report.claim_result import ClaimResult, read_claims, write_claims
from rlfactory.report.claim_table import counts_text, difference_text, verdict_text
from rlfactory.report.claims import claim_column, comparison
from rlfactory.report.command import write
from rlfactory.report.inputs import report_of_sweep
from rlfactory.report.report import Report, TextSample
from rlfactory.report.verdicts import MIN_SEEDS
from rlfactory.report.writers import claim_lines, plain
from rlfactory.sweep.claims import Claim
from rlfactory.sweep.jobs import columns_of
from rlfactory.sweep.sweep_file import SweepFile, file_of, read_sheet, sweeps
from rlfactory.sweep.table import Table

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SIZE = "tiny"
RESPONSES = 2
"""Sampled responses of each row on a page."""
NOT_COMPUTED = "not computed from runs yet"
HEAD = """# Claims of the sources, tested in tiny form

Each sweep was run in its tiny form: on two CPU cores, with the small models that ship and stand-ins
for rewards that need networks or servers. So a verdict is about these models and stand-ins: no
published number was tested at its own size. Verdicts are computed from the runs, none is written by
hand: at 95 %, corrected by Holm's method for the claims of a page
([statistics](../report.md#claims)). With fewer than {seeds} seeds a claim is undecided, whatever
its numbers are. A claim whose source is "a question of this project" is in no paper. Each sweep's
page has its table, its curves and the intervals.

Written by `python scripts/docs/sweep_results.py`.
"""


def main() -> None:
    """Write a page for each sweep folder on the command line, then refresh all pages and README."""
    for folder in map(Path, sys.argv[1:]):
        name = folder.name.removesuffix(f"-{SIZE}")
        publish(current_report(folder, name), name, RESULTS)
        print(f"written: {RESULTS / name}.md")
    for name in names(RESULTS):
        page = RESULTS / f"{name}.md"
        text = page.read_text(encoding="utf-8")
        page.write_text(refreshed(text, _sheet(name), results_of(name, RESULTS)), encoding="utf-8")
    (RESULTS / "README.md").write_text(index(RESULTS), encoding="utf-8")


def current_report(folder: Path, name: str) -> Report:
    """The report of runs with what the sweep's file says now of its claims and of what ran.

    Of samples it has a few responses; the differing keys are left out, as the sweep's file lists
    them.
    """
    sheet, table = _sheet(name), Table.load(folder)
    about = replace(table.about, ran=sheet.about.ran)
    report = report_of_sweep(replace(table, about=about, claims=sheet.claims), folder)
    texts = [text for row in report.rows for text in _first_texts(report, row.name)]
    return replace(report, images=[], texts=texts, differences={})


def _first_texts(report: Report, row: str) -> list[TextSample]:
    return [text for text in report.texts if text.row == row][:RESPONSES]


def publish(report: Report, name: str, results: Path) -> None:
    """Write NAME.md, NAME.png and NAME.json."""
    with TemporaryDirectory() as folder:
        write(report, Path(folder), ["markdown"])
        page = (Path(folder) / "report.md").read_text(encoding="utf-8")
        results.mkdir(exist_ok=True)
        copyfile(Path(folder) / "curves.png", results / f"{name}.png")
    command = f"```bash\nrlfactory sweep {name} size={SIZE}\n```"
    title, _, rest = page.replace("(curves.png)", f"({name}.png)").partition("\n")
    (results / f"{name}.md").write_text(f"{title}\n\n{command}\n{rest}", encoding="utf-8")
    write_claims(report.claims, results / f"{name}.json")


def results_of(name: str, results: Path) -> list[ClaimResult]:
    """The stored result of each claim in the sweep's file, undecided where there is none."""
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
    return found


def _without_words(claim: Claim) -> str:
    """What a claim compares: its sentence and its source may change."""
    return repr(replace(claim, text="", source=""))


def refreshed(page: str, sheet: SweepFile, found: Sequence[ClaimResult]) -> str:
    """A page with what the sweep's file says now of what ran, and with its claims."""
    ran = f"- Run here: {plain(sheet.about.ran)}"
    page = re.sub(r"^- Run here: .*$", lambda _: ran, page, flags=re.MULTILINE)
    page = re.sub(r"\n## Claims\n.*?(?=\n## |\Z)", "", page, flags=re.DOTALL)
    head, curves, rest = page.partition("\n## Curves\n")
    return "\n".join([head.rstrip("\n"), *claim_lines(found), ""]) + curves + rest


def names(results: Path) -> list[str]:
    """The sweeps that have a page."""
    return sorted({page.stem for page in results.glob("*.md")} - {"README", "index"})


def index(results: Path) -> str:
    """The table of all claims, with counts, and the list of pages."""
    found = {name: results_of(name, results) for name in names(results)}
    everything = [result for own in found.values() for result in own]
    tested = sum(bool(own) for own in found.values())
    parts = [
        HEAD.format(seeds=MIN_SEEDS),
        f"**{counts_text(everything)}**, of {tested} sweeps.\n",
        "\n".join(claims_table(found)),
        *_pages_without_claims(found, results),
        *_not_measured(found),
    ]
    return "\n".join(parts) + "\n"


def claims_table(found: Mapping[str, Sequence[ClaimResult]]) -> list[str]:
    """The lines of a table with each claim of each sweep."""
    heads = ["| sweep | claim | source | difference | n | verdict |", "|---|---|---|---:|---:|---|"]
    lines = [
        [result.claim.text, result.claim.source, difference_text(result), str(result.seeds)]
        + [verdict_text(result), name]
        for name, own in found.items()
        for result in own
    ]
    rows = [f"| [{name}]({name}.md) | {' | '.join(map(plain, cells))} |" for *cells, name in lines]
    return [*heads, *rows]


def _pages_without_claims(
    found: Mapping[str, Sequence[ClaimResult]], results: Path
) -> Iterator[str]:
    pages = [f"[{name}]({name}.md)" for name, own in found.items() if not own]
    if pages:
        yield f"\nWithout claims of a source: {', '.join(pages)}."


def _not_measured(found: Mapping[str, Sequence[ClaimResult]]) -> Iterator[str]:
    waiting = [f"`{name}`" for name in sorted(sweeps().keys() - found.keys())]
    if waiting:
        yield f"\nNot measured yet: {', '.join(waiting)}."


def _sheet(name: str) -> SweepFile:
    return read_sheet(file_of(name))


if __name__ == "__main__":
    main()
