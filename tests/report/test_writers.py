import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.report import writers
from rlfactory.report.discover import reports_of
from rlfactory.report.writers import write_csv, write_latex, write_markdown

MakeMarkdown = Callable[..., Path]


def test_a_page_holds_all_that_a_report_has(tmp_path: Path, filled_sweep: MakeMarkdown) -> None:
    (report,) = reports_of([filled_sweep(tmp_path / "s")]).values()
    text = write_markdown(report, tmp_path, "curves.png").read_text()
    assert "# Shapes & shares (tiny)" in text
    assert "- Paper: A paper, Table 1" in text
    assert "- Budget of the full form: 12.5 GPU hours" in text
    assert "| NFT | 0.900 | 0.850 ± 0.635 | 2 | 4 | 4,000 | 2 done | fast |" in text
    assert "![curves over training](curves.png)" in text
    assert "## Against the first row" in text
    assert "| NFT | nft |" in text
    assert "Higher is better in Shapes." in text


def test_pictures_lie_beside_the_page(tmp_path: Path, make_run: MakeMarkdown) -> None:
    (report,) = reports_of([make_run(tmp_path / "a", media="images")]).values()
    for _ in range(2):
        text = write_markdown(report, tmp_path / "a").read_text()
    links = re.findall(r"!\[.*\]\((.*)\)", text)
    assert links == ["images/00_strip.png", "images/01_eval_000004.png"]
    assert all((tmp_path / "a" / link).is_file() for link in links)


def test_texts_cannot_break_the_table(tmp_path: Path, make_run: MakeMarkdown) -> None:
    (report,) = reports_of([make_run(tmp_path / "a", media="texts")]).values()
    text = write_markdown(report, tmp_path).read_text()
    assert r"a \<b>bold\</b> \| star, 0" in text


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
    assert (float(lines[0]["low"]), float(lines[0]["high"])) == cell.interval
    assert [*map(float, lines[0]["values"].split())] == cell.values
    assert (lines[0]["iqm_low"], lines[2]["mean"], lines[2]["paper"]) == ("", "", "0.5")
    assert lines[0]["steps"] == "4"


def test_a_table_is_a_tabular(tmp_path: Path, filled_sweep: Make) -> None:
    (report,) = reports_of([filled_sweep(tmp_path / "s")]).values()
    lines = write_latex(report, tmp_path).read_text().splitlines()
    assert lines[0] == "% Shapes & shares (tiny)"
    assert lines[1] == r"\begin{tabular}{lrrrrrll}"
    assert r"NFT & 0.900 & 0.850 $\pm$ 0.635 & 2 & 4 & 4,000 & 2 done & fast \\" in lines
    assert lines[-1] == r"\end{tabular}"


@pytest.mark.parametrize(
    "text", ["=HYPERLINK(1)", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1"]
)
def test_a_text_is_no_formula_of_a_spreadsheet(text: str) -> None:
    assert writers._cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-0.5", "-1.5e-05 2.0", "", "a name", -0.5, None])
def test_numbers_and_names_stay_as_they_are(value: object) -> None:
    assert writers._cell(value) == value
