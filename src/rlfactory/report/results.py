"""What a run's results are shown by: galleries while it trains, and everything at its end.

Training imports this module alone of the package.
"""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from rlfactory.report.gallery import gallery
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import read
from rlfactory.run.scores import Scores, read_sets, set_pairs

__all__ = ["draw_run", "gallery", "show_results"]
Advice = Sequence[str] | None


def draw_run(folder: RunFolder, status: str | None = None, advice: Advice = None) -> Path:
    """Draw the curves of a run and write its page, whose path is returned.

    Raises:
        OSError: they can't be written.
    """
    from rlfactory.report.page import write_run_page
    from rlfactory.report.run_content import run_content
    from rlfactory.report.run_curves import draw_curves

    run = run_content(folder, status, advice)
    title = f"{run.name}: {run.choices}" if run.choices else run.name
    draw_curves(run.curves, folder.curves, title)
    return write_run_page(run)


def show_results(
    folder: RunFolder, before: Scores, after: Scores | None, outcome: str, advice: Sequence[str]
) -> None:
    """Write curves, page and summary of a run at its end, and print where to look.

    Args:
        before: the scores of the initial weights.
        after: those of the final weights; None if the run stopped before they were evaluated.
        outcome: the status that the page shows.
        advice: messages about the run's health.
    """
    # what draws is loaded at the end of a run
    from rlfactory.report.summary import summary_table, where_to_look, write_summary

    draw_run(folder, outcome, advice)
    sets, metrics = set_pairs(read_sets(folder)), read(folder.metrics)
    write_summary(folder, before, after, metrics, advice, sets)
    console = Console(force_jupyter=False)  # one output of a notebook's cell, not one a line
    if after is not None:
        console.print(summary_table(before, after, sets))
    for line in where_to_look(folder):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
