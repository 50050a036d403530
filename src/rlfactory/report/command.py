"""`rlfactory report` and `compare`: runs and sweeps in the terminal, and files for others."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rlfactory.problems import PlanError, Problem
from rlfactory.report.report import Report

FORMATS = ("terminal", "markdown", "csv", "latex", "html")
_DRAWN = {"markdown", "html"}


def report(words: Sequence[str]) -> int:
    """Print and write the reports that were asked for."""
    from rlfactory.report.sources import reports_of

    a = report_arguments(words)
    reports = reports_of(a.paths, best=a.best)
    out = a.out or _place(a.paths)
    for name, found in reports.items():
        folder = out if len(reports) == 1 else out / name
        if "terminal" in a.format:
            show(found)
        if written := write(found, folder, a.format):
            print("\n".join(f"written: {path}" for path in written))
    return 0


def compare(words: Sequence[str]) -> int:
    """Print two runs side by side, and write that where it was asked for."""
    from rlfactory.report.compare import print_comparison, sides, write_comparison

    a = compare_arguments(words)
    pair = sides(a.runs[0], a.runs[1])
    print_comparison(pair)
    if a.out is not None:
        try:
            written = write_comparison(pair, a.out)
        except OSError as error:
            raise _unwritable(a.out, error) from error
        print("\n".join(f"written: {path}" for path in written))
    return 0


def compare_arguments(words: Sequence[str]) -> argparse.Namespace:
    """What `rlfactory compare` was told."""
    parser = argparse.ArgumentParser(prog="rlfactory compare", description="Two runs side by side.")
    parser.add_argument("runs", nargs=2, type=_folder, metavar="RUN", help="a run folder")
    parser.add_argument("--out", type=_folder, help="a folder for compare.md and compare.png")
    return parser.parse_args(words)


def report_arguments(words: Sequence[str]) -> argparse.Namespace:
    """What `rlfactory report` was told."""
    parser = argparse.ArgumentParser(
        prog="rlfactory report", description="A table of runs or sweeps, beside the paper's."
    )
    parser.add_argument("paths", nargs="+", type=_folder, metavar="PATH", help="a run or a sweep")
    parser.add_argument("--out", type=_folder, help="a folder; default PATH/report")
    parser.add_argument(
        "--format", type=_formats, default=FORMATS, help=f"some of {','.join(FORMATS)}"
    )
    parser.add_argument("--best", action="store_true", help="the best evaluation, not the last")
    return parser.parse_args(words)


def show(report: Report) -> None:
    """Print a report's tables and notes."""
    from rlfactory.report import table as made
    from rlfactory.report.terminal import Terminal

    terminal = Terminal()
    terminal.heading(report.title)
    terminal.table(made.main_table(report))
    terminal.table(made.comparison_table(report), "against the first row")
    terminal.table(made.told_differences(report), "what differs")
    terminal.notes(report.notes)


def write(report: Report, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write the files of the formats, and the curves where they are shown."""
    from rlfactory.report.csvs import write_csv
    from rlfactory.report.latex import write_latex
    from rlfactory.report.markdown import write_markdown
    from rlfactory.report.plot import draw_report

    if not {*formats} - {"terminal"}:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        drawn = draw_report(report.curves, folder) if _DRAWN & {*formats} else []
        figure = drawn[0].name if drawn else None
        written = [write_markdown(report, folder, figure)] if "markdown" in formats else []
        written += drawn
        written += [write_csv(report, folder)] if "csv" in formats else []
        written += [write_latex(report, folder)] if "latex" in formats else []
        return written + ([_page(report, folder)] if "html" in formats else [])
    except OSError as error:
        message = f"{folder} can't be written ({error.strerror or error})"
        raise PlanError(
            [Problem("--out", message, "rlfactory report PATH --out FOLDER")]
        ) from error


def _unwritable(folder: Path, error: OSError) -> PlanError:
    message = f"{folder} can't be written ({error.strerror or error}); name one that can"
    return PlanError([Problem("--out", message)])


def _page(report: Report, folder: Path) -> Path:
    from rlfactory.report.page import write_page

    return write_page(report, folder)


def _place(paths: Sequence[Path]) -> Path:
    return (paths[0] if len(paths) == 1 else Path("outputs")) / "report"


def _folder(word: str) -> Path:
    return Path(word).expanduser()


def _formats(word: str) -> list[str]:
    names = [name for name in word.split(",") if name]
    unknown = [name for name in names if name not in FORMATS]
    if unknown or not names:
        known = ", ".join(FORMATS)
        raise argparse.ArgumentTypeError(f"{', '.join(unknown) or 'none'}; known are {known}")
    return names
