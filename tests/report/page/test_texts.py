"""What was written before and after."""

from rlfactory.report.page.texts import texts
from rlfactory.report.report import TextSample


def test_a_part_for_each_row_the_first_open():
    made = [TextSample(row, "p", "old", "new") for row in ("a", "b", "a")]
    html = texts(made)
    assert html.count("<details") == 2
    assert html.count("<details open>") == 1
    assert "2 prompts" in html


def test_what_was_not_written_has_no_heading():
    assert "Before" not in texts([TextSample("a", "p", " ", "new")])
