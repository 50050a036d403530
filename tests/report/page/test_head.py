"""The top of the page."""

from dataclasses import replace

from rlfactory.report.page.head import head


def test_where_it_is_from_and_what_it_costs(report):
    html = head(report)
    assert "V-GRPO (2025) · Table 6" in html
    assert "400 GPU-hours at full size" in html
    assert "3 rows, 2 of them measured in 3 runs" in html


def test_what_no_one_has_said_is_left_out(report):
    about = replace(report.about, gpu_hours=None, tolerance="")
    html = head(replace(report, about=about))
    assert "Budget" not in html
    assert "Tolerance" not in html


def test_plain_runs_have_no_source(report):
    assert "eyebrow" not in head(replace(report, about=None))
