import csv
from collections.abc import Callable
from pathlib import Path

from rlfactory.report.csvs import write_csv
from rlfactory.report.sources import reports_of

Make = Callable[..., Path]


def test_numbers_are_in_full_and_what_is_not_known_is_empty(
    tmp_path: Path, filled_sweep: Make
) -> None:
    (report,) = reports_of([filled_sweep(tmp_path / "s")]).values()
    with write_csv(report, tmp_path).open(newline="") as file:
        lines = [*csv.DictReader(file)]
    assert [line["row"] for line in lines] == ["NFT", "GRPO", "FLUX.1"]
    cell = report.rows[0].cells["shapes"]
    assert float(lines[0]["mean"]) == cell.mean
    assert (float(lines[0]["low"]), float(lines[0]["high"])) == (cell.low, cell.high)
    assert [*map(float, lines[0]["values"].split())] == cell.values
    assert (lines[0]["iqm_low"], lines[2]["mean"], lines[2]["paper"]) == ("", "", "0.5")
    assert lines[0]["steps"] == "4"
