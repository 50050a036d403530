"""Write the pages of docs/results: the table and curves of each sweep's tiny form, as it was run.

python scripts/docs/sweep_results.py outputs/sweeps/*-tiny   # none: the index alone

What agrees with the paper and what does not comes from `about.ran` in the sweep's file.
"""

import sys
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from rlfactory.report.command import write
from rlfactory.report.inputs import reports_of
from rlfactory.report.report import Report
from rlfactory.report.writers import plain
from rlfactory.sweep.sweep_file import file_of, read_sheet, sweeps

RESULTS = Path(__file__).parents[2] / "docs" / "results"
HEAD = """# Tables, in their tiny form

Each sweep in its tiny form: on two CPU cores, with the small models that ship and stand-ins for
rewards that need networks or servers. Compare which method wins and what fails, not the numbers.
Written by `python scripts/docs/sweep_results.py outputs/sweeps/*-tiny`.

| sweep | table | result |
|---|---|---|
"""


def main() -> None:
    """Write a page for each sweep folder named on the command line, and the index of all pages."""
    for folder in map(Path, sys.argv[1:]):
        name = folder.name.removesuffix("-tiny")
        (report,) = reports_of([folder]).values()
        publish(with_current_remark(report, name), name, RESULTS)
        print(f"written: {RESULTS / name}.md")
    (RESULTS / "README.md").write_text(index(RESULTS), encoding="utf-8")


def with_current_remark(report: Report, name: str) -> Report:
    """The report with `ran` as the sweep's file has it now.

    Samples are left out, and so are the differing keys, which the sweep's file lists.
    """
    about = None if report.about is None else replace(report.about, ran=_ran(name))
    return replace(report, about=about, images=[], texts=[], differences={})


def publish(report: Report, name: str, results: Path) -> None:
    """Write NAME.md and NAME.png."""
    with TemporaryDirectory() as folder:
        write(report, Path(folder), ["markdown"])
        page = (Path(folder) / "report.md").read_text(encoding="utf-8")
        results.mkdir(exist_ok=True)
        copyfile(Path(folder) / "curves.png", results / f"{name}.png")
    command = f"```bash\nrlfactory sweep {name} size=tiny\n```"
    title, _, rest = page.replace("(curves.png)", f"({name}.png)").partition("\n")
    (results / f"{name}.md").write_text(f"{title}\n\n{command}\n{rest}", encoding="utf-8")


def index(results: Path) -> str:
    """The index: a line for each page."""
    return HEAD + "".join(
        f"| [{page.stem}]({page.name}) | {_title(page)} | {plain(_ran(page.stem))} |\n"
        for page in sorted(results.glob("*.md"))
        if page.stem in sweeps()
    )


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _ran(name: str) -> str:
    return read_sheet(file_of(name)).about.ran


if __name__ == "__main__":
    main()
