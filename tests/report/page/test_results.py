"""The table says what the report says."""

from dataclasses import replace

import pytest

from rlfactory.report.page.results import best_row, results, status


def test_paper_and_ours_side_by_side(report):
    table = results(report, [])
    assert '<td class="paper first">0.97</td>' in table
    assert 'title="Each run: 0.81, 0.79"><span>0.80</span><small>± 0.03</small>' in table


def test_a_column_that_no_paper_has_is_ours_alone(report):
    assert results(report, []).count(">paper<") == 2
    assert results(report, []).count(">ours<") == 3


def test_the_best_follows_the_columns_sense(report):
    geneval, _, kl = report.columns
    assert best_row(geneval, report.rows) == "V-GRPO"
    assert best_row(kl, report.rows) == "Flow-GRPO, all steps"
    assert best_row(replace(geneval, better="neither"), report.rows) is None
    assert best_row(geneval, report.rows[:1]) is None


def test_rows_of_curves_carry_their_colour(report):
    assert results(report, ["Flow-GRPO, all steps"]).count("chip c0") == 1


@pytest.mark.parametrize(
    ("words", "kind"),
    [("2 done", "good"), ("1 done, 1 failed", "bad"), ("1 running", "open"), ("", "none")],
)
def test_states(words, kind):
    assert f'class="state {kind}"' in status(words)
