"""Write the pages of docs/results, and its README: one table of all claims with their verdicts.

python scripts/docs/sweep_results.py outputs/sweeps/*-tiny    # pages of these runs, then as below
python scripts/docs/sweep_results.py                          # from what docs/results stores

A page has the table and curves of a sweep's tiny form, as it was run; NAME.json beside it has the
verdicts on the claims in the sweep's file, and the overrides and seeds of the runs. A comparison
that was added since is undecided, and so are all where the sweep's tiny form is another one now.
"""

import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

from rlfactory.config.problems import override_key
from rlfactory.report.claim_result import ClaimResult, read_claims, write_claims
from rlfactory.report.claim_table import counts_text, difference_text, verdict_text
from rlfactory.report.claims import claim_column, comparison
from rlfactory.report.command import write
from rlfactory.report.inputs import report_of_sweep
from rlfactory.report.report import Report, TextSample
from rlfactory.report.verdicts import MIN_SEEDS
from rlfactory.report.writers import claim_lines
from rlfactory.sweep.claims import Claim
from rlfactory.sweep.jobs import columns_of, jobs_of, seeds_of, share_stages
from rlfactory.sweep.sweep_file import SweepFile, file_of, read_sheet, sweeps
from rlfactory.sweep.table import Job, Table
from rlfactory.utils.markdown import plain

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SIZE = "tiny"
Form = Mapping[str, Any]
"""Of a sweep's runs: `rows`, the overrides by row, and `seeds`."""
RESPONSES = 2
"""Sampled responses of each row on a page."""
OWN_PAGES = ("hacking", "leaderboard")
"""Pages of docs that show the runs of all sweeps whose names begin so."""
NOT_COMPUTED = "not computed from runs yet"
EARLIER = "measured with an earlier form"
EARLIER_LINE = "**Measured with an earlier form of the sweep's file**: other overrides or seeds."
HEAD = """# Claims of the sources, tested in tiny form

Each sweep was run in its tiny form: on two CPU cores, with the small models that ship and stand-ins
for rewards that need networks or servers. So a verdict is about these models and stand-ins: no
published number was tested at its own size. Verdicts are computed from the runs, none is written by
hand: at 95 %, corrected by Holm's method for the claims of a page
([statistics](../report.md#claims)). With fewer than {seeds} seeds a claim is undecided, whatever
its numbers are. A claim whose source is "a question of this project" is in no paper. Sweeps
of images are evaluated on held-out prompts; those of language models on fixed starts that are
trained on too, and some of their claims compare the training reward. Each sweep's page has its
table, its curves and the intervals. Sweeps with "earlier form" were run with other
overrides or seeds than their files have now: all their claims are undecided.

Written by `python scripts/docs/sweep_results.py`.
"""


def main() -> None:
    """Write a page for each sweep folder on the command line, then refresh all pages and README."""
    for folder in map(Path, sys.argv[1:]):
        name = folder.name.removesuffix(f"-{SIZE}")
        publish(current_report(folder, name), name, RESULTS, run_form(folder, name))
        print(f"written: {RESULTS / name}.md")
    for name in names(RESULTS):
        page = RESULTS / f"{name}.md"
        text = page.read_text(encoding="utf-8")
        earlier = is_earlier(name, RESULTS)
        written = refreshed(text, _sheet(name), results_of(name, RESULTS), earlier)
        page.write_text(written, encoding="utf-8")
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


def form_now(sheet: SweepFile) -> Form:
    """The tiny form as the sweep's file has it."""
    jobs = jobs_of(sheet, SIZE, [], {}, seeds_of(sheet, SIZE))
    return form_of(jobs if sheet.search else share_stages(jobs), sheet.search.keys())


def is_earlier(name: str, results: Path) -> bool:
    """Whether the runs of a page had other overrides or seeds than the sweep's file has now."""
    stored = results / f"{name}.json"
    if not stored.is_file():
        return False
    return bool(json.loads(stored.read_text(encoding="utf-8"))["form"] != form_now(_sheet(name)))


def publish(report: Report, name: str, results: Path, form: Form) -> None:
    """Write NAME.md, NAME.png and NAME.json."""
    with TemporaryDirectory() as folder:
        write(report, Path(folder), ["markdown"])
        page = (Path(folder) / "report.md").read_text(encoding="utf-8")
        results.mkdir(exist_ok=True)
        copyfile(Path(folder) / "curves.png", results / f"{name}.png")
    command = f"```bash\nrlfactory sweep {name} size={SIZE}\n```"
    title, _, rest = page.replace("(curves.png)", f"({name}.png)").partition("\n")
    (results / f"{name}.md").write_text(f"{title}\n\n{command}\n{rest}", encoding="utf-8")
    stored = write_claims(report.claims, results / f"{name}.json")
    content = json.loads(stored.read_text(encoding="utf-8")) | {"form": form}
    stored.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


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


def refreshed(page: str, sheet: SweepFile, found: Sequence[ClaimResult], earlier: bool) -> str:
    """A page with what the sweep's file says now of what ran, and with its claims."""
    page = page.replace(f"{EARLIER_LINE}\n\n", "")
    if earlier:
        page = page.replace("\n\n", f"\n\n{EARLIER_LINE}\n\n", 1)
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
    earlier = {name: " (earlier form)" for name in found if is_earlier(name, RESULTS)}
    heads = ["| sweep | claim | source | difference | n | verdict |", "|---|---|---|---:|---:|---|"]
    lines = [
        [result.claim.text, result.claim.source, difference_text(result), str(result.seeds)]
        + [verdict_text(result), name]
        for name, own in found.items()
        for result in own
    ]
    rows = [
        f"| [{name}]({name}.md){earlier.get(name, '')} | {' | '.join(map(plain, cells))} |"
        for *cells, name in lines
    ]
    return [*heads, *rows]


def _pages_without_claims(
    found: Mapping[str, Sequence[ClaimResult]], results: Path
) -> Iterator[str]:
    pages = [f"[{name}]({name}.md)" for name, own in found.items() if not own]
    if pages:
        yield f"\nWithout claims of a source: {', '.join(pages)}."


def _not_measured(found: Mapping[str, Sequence[ClaimResult]]) -> Iterator[str]:
    others = sorted(sweeps().keys() - found.keys())
    shown = [f"[{n}](../{page}.md)" for n in others for page in OWN_PAGES if n.startswith(page)]
    if shown:
        yield f"\nOn pages of their own: {', '.join(shown)}."
    waiting = [f"`{name}`" for name in others if not name.startswith(OWN_PAGES)]
    if waiting:
        yield f"\nNot run yet: {', '.join(waiting)}."


def _sheet(name: str) -> SweepFile:
    return read_sheet(file_of(name))


if __name__ == "__main__":
    main()
