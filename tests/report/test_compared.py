import pytest

from rlfactory.report.compared import comparisons
from rlfactory.sweep.table import Column

UP, DOWN = Column("up", "Up", "eval/up"), Column("down", "Down", "eval/down", "lower")
SAYS_NOTHING = Column("n", "N", "iterations", "neither")


def test_a_row_is_held_against_the_first_that_was_run_by_seed() -> None:
    rows = {
        "paper only": {"up": []},
        "base": {"up": [(0, 1.0), (1, 5.0), (2, 9.0)]},
        "ours": {"up": [(2, 10.0), (1, 6.0), (7, 99.0)]},
    }
    (found,) = comparisons([UP], rows)
    assert (found.row, found.other, found.column, found.n) == ("ours", "base", "up", 2)
    assert found.difference == 1.0
    assert (found.low, found.high) == (1.0, 1.0)
    assert found.probability == pytest.approx((3 + 3 + 2) / 9)
    assert found.probability_low is not None


def test_lower_is_better_where_the_column_says_so() -> None:
    rows = {"base": {"down": [(0, 1.0)]}, "ours": {"down": [(0, 0.5)]}}
    (found,) = comparisons([DOWN], rows)
    assert found.probability == 1.0


def test_one_pair_is_no_difference_and_two_runs_no_bootstrap() -> None:
    rows = {"base": {"up": [(0, 1.0), (1, 2.0)]}, "ours": {"up": [(0, 3.0), (5, 4.0)]}}
    (found,) = comparisons([UP], rows)
    assert (found.n, found.difference, found.low, found.probability_low) == (1, None, None, None)
    assert found.probability == 1.0


def test_several_columns_are_also_judged_together() -> None:
    rows = {
        "base": {"up": [(0, 1.0)], "down": [(0, 1.0)], "n": [(0, 1.0)]},
        "ours": {"up": [(0, 2.0)], "down": [(0, 2.0)], "n": [(0, 2.0)]},
    }
    found = comparisons([UP, DOWN, SAYS_NOTHING], rows)
    assert [(c.column, c.probability) for c in found] == [("up", 1.0), ("down", 0.0), ("", 0.5)]


def test_rows_without_numbers_are_held_against_nothing() -> None:
    assert comparisons([UP], {"a": {"up": []}, "b": {"up": []}}) == []
    assert comparisons([UP], {"a": {"up": [(0, 1.0)]}, "b": {"up": []}}) == []
