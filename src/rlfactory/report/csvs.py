"""The table as CSV: a line a row and column, numbers in full."""

import csv
import io
from pathlib import Path

from rlfactory.report.report import Report
from rlfactory.run.atomic import write_text

FILE = "table.csv"
HEADS = (
    *("row", "column", "paper", "mean", "low", "high", "n", "iqm", "iqm_low", "iqm_high"),
    *("values", "steps", "nfe", "status", "note"),
)


def write_csv(report: Report, folder: Path) -> Path:
    """Write table.csv; what is not known is empty, `values` has a space between."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADS)
    for row in report.rows:
        for column in report.columns:
            c = row.cells[column.name]
            numbers = [c.paper, c.mean, c.low, c.high, c.n, c.iqm, c.iqm_low, c.iqm_high]
            values = " ".join(map(str, c.values))
            ends = [values, row.steps, row.nfe, row.status, row.note]
            writer.writerow([row.name, column.name, *numbers, *ends])
    path = folder / FILE
    write_text(path, text.getvalue())
    return path
