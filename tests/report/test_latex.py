from collections.abc import Callable
from pathlib import Path

from rlfactory.report.latex import escaped, latex_table, write_latex
from rlfactory.report.sources import reports_of
from rlfactory.report.table import Words

Make = Callable[..., Path]


def test_a_table_is_a_tabular(tmp_path: Path, filled_sweep: Make) -> None:
    (report,) = reports_of([filled_sweep(tmp_path / "s")]).values()
    lines = write_latex(report, tmp_path).read_text().splitlines()
    assert lines[0] == "% Shapes & shares (tiny)"
    assert lines[1] == r"\begin{tabular}{lrrrrrll}"
    assert r"NFT & 0.900 & 0.850 $\pm$ 0.635 & 2 & 4 & 4k & 2 done & fast \\" in lines
    assert lines[-1] == r"\end{tabular}"


def test_every_line_has_as_many_cells_as_columns() -> None:
    lines = latex_table(Words(["row", "x"], [["a & b", "1"], ["c", "2"]]))
    rows = [line for line in lines if line.endswith(r"\\")]
    assert [row.replace(r"\&", "").count("&") for row in rows] == [1, 1, 1]


def test_text_is_printed_as_it_is() -> None:
    assert escaped("50% of a_b\n{x} ~ ^ \\") == (
        r"50\% of a\_b \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )
