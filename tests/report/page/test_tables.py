"""Row against row, and what differs."""

from dataclasses import replace

from rlfactory.report.page.tables import comparisons, differences


def test_a_difference_whose_interval_leaves_out_zero_stands_out(report):
    unclear = [replace(report.comparisons[0], low=-0.1)]
    assert '<td class="best"><span>0.10</span>' in comparisons(report)
    assert 'class="best"' not in comparisons(replace(report, comparisons=unclear))


def test_few_keys_go_across_and_many_go_down():
    few = differences({"a.b": ["1", "2"]}, ["x", "y"])
    many = differences({key: ["1", "2"] for key in "abc"}, ["x", "y"])
    assert '<th scope="col"><code>a.b</code></th>' in few
    assert '<th scope="row" class="name"><code>a</code></th>' in many


def test_what_is_as_in_the_first_row_is_faint():
    table = differences({"k": ["1", "1", "2"]}, ["x", "y", "z"])
    assert table.count('<span class="same">1</span>') == 1
    assert "<span>2</span>" in table
