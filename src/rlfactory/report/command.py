"""The commands `rlfactory report` and `rlfactory compare`."""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rlfactory.config.problems import PlanError, Problem
from rlfactory.report.report import Report
from rlfactory.utils.text import typed_path

FORMATS = ("terminal", "markdown", "csv", "latex", "html", "json")
CURVES = ("curves.png", "curves.svg")


def report(words: Sequence[str]) -> int:
    """Print and write the reports of the paths in `words`; returns the exit code."""
    from rlfactory.report.discover import is_run, reports_of
    from rlfactory.report.page import write_run_page
    from rlfactory.report.run_content import RunContent
    from rlfactory.run.folder import RunFolder

    a = report_arguments(words)
    reports = reports_of(a.paths)
    out = a.out or (a.paths[0] if len(a.paths) == 1 else Path("outputs")) / "report"
    paths, elsewhere = map(str, a.paths), f"{a.paths[0].resolve().name}-report"
    fix = shlex.join(["rlfactory", "report", *paths, "--out", elsewhere])
    for name, built in reports.items():
        if "terminal" in a.format:
            show(built)
        with _writable(out, fix=fix):
            written = write(built, out if len(reports) == 1 else out / name, a.format)
            if "html" in a.format and not a.out and len(a.paths) == 1 and is_run(a.paths[0]):
                written.append(write_run_page(RunContent(RunFolder(a.paths[0]))))
        for path in written:
            print(f"written: {path}")
    return 0


def compare(words: Sequence[str]) -> int:
    """Print two runs side by side, and write files with --out; returns the exit code."""
    from rlfactory.report.compare import print_comparison, read_pair, write_comparison

    a = compare_arguments(words)
    pair = read_pair(a.runs[0], a.runs[1])
    print_comparison(pair)
    if a.out is not None:
        with _writable(a.out, "; name another folder"):
            written = write_comparison(pair, a.out)
        print("\n".join(f"written: {path}" for path in written))
    return 0


def compare_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words after `rlfactory compare`."""
    parser = argparse.ArgumentParser(prog="rlfactory compare", description="Two runs side by side.")
    parser.add_argument("runs", nargs=2, type=typed_path, metavar="RUN", help="a run folder")
    parser.add_argument("--out", type=typed_path, help="a folder for compare.md and compare.png")
    return parser.parse_args(words)


def report_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words after `rlfactory report`."""
    parser = argparse.ArgumentParser(
        prog="rlfactory report", description="A table of runs or sweeps, with the paper's numbers."
    )
    parser.add_argument(
        "paths", nargs="+", type=typed_path, metavar="PATH", help="a run or a sweep"
    )
    parser.add_argument("--out", type=typed_path, help="a folder; default PATH/report")
    parser.add_argument(
        "--format", type=_formats, default=FORMATS, help=f"some of {','.join(FORMATS)}"
    )
    return parser.parse_args(words)


def show(report: Report) -> None:
    """Print a report's tables and notes."""
    from rlfactory.report.report_tables import main_table, sections
    from rlfactory.report.text_table import Terminal

    terminal = Terminal()
    terminal.heading(report.title)
    terminal.table(main_table(report))
    terminal.sections(sections(report))
    terminal.notes(report.notes)


def write(report: Report, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write the files of the formats, and the figures with Markdown and HTML."""
    from rlfactory.report.claims import CLAIMS_FILE, write_claims
    from rlfactory.report.draw import draw_figure
    from rlfactory.report.leaderboard import ENTRIES_FILE, draw_leaderboard, write_entries
    from rlfactory.report.page import write_page
    from rlfactory.report.writers import LEADERBOARD_FIGURE, write_csv, write_latex, write_markdown

    if not {*formats} - {"terminal"}:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    if {"markdown", "html"} & {*formats}:
        written += draw_figure(report.curves, *(folder / name for name in CURVES))
        figure = CURVES[0] if written else None
        if report.entries:
            written.append(draw_leaderboard(report.entries, folder / LEADERBOARD_FIGURE))
        if "markdown" in formats:
            written.append(write_markdown(report, folder, figure))
    writers = {"csv": write_csv, "latex": write_latex, "html": write_page}
    written += [write(report, folder) for name, write in writers.items() if name in formats]
    if "json" in formats and report.claims:
        written.append(write_claims(report.claims, folder / CLAIMS_FILE))
    if "json" in formats and report.entries:
        written.append(write_entries(report.entries, folder / ENTRIES_FILE))
    return written


@contextmanager
def _writable(folder: Path, more: str = "", fix: str = "") -> Iterator[None]:
    """A folder that can't be written, as a problem with its fix."""
    try:
        yield
    except OSError as error:
        message = f"{error.filename or folder} can't be written ({error.strerror or error}){more}"
        raise PlanError([Problem("--out", message, fix)]) from error


def _formats(word: str) -> list[str]:
    names = [name for name in word.split(",") if name]
    unknown = ", ".join(name for name in names if name not in FORMATS)
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"{unknown or 'none'}; allowed are {', '.join(FORMATS)}")
    return names
