"""A run as HTML in a notebook."""

from pathlib import Path

from rlfactory.report.page import SHOWN, notebook_html
from rlfactory.run.folder import RunFolder
from rlfactory.run.samples import sample_table


def test_texts_are_a_table_of_the_first_ones(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.samples.mkdir()
    count = SHOWN + 3
    completions = [f"<b>{i}</b> | a\n b" for i in range(count)]
    scores = {"length": [float(i) for i in range(count)], "other": [9.0] * count}
    table = sample_table("title", ["a & b"] * count, completions, scores)
    table.save(folder.samples / "eval_000002.json")
    (folder.samples / "eval_000002.md").write_text(table.markdown())
    html = notebook_html(folder, {}, {"length": 2.0})
    assert html.count(">&lt;b&gt;") == SHOWN
    assert "&lt;b&gt;0&lt;/b&gt; | a\n b</td>" in html
    assert ">a &amp; b</td>" in html
    assert "length</th>" in html
    assert ">7.000</td>" in html
    assert "9.000" not in html
    assert "<pre>" not in html
    assert "|---|" not in html


def test_a_run_without_an_evaluation_shows_its_path(tmp_path: Path) -> None:
    assert notebook_html(RunFolder(tmp_path), {}, {}) == f"<p><code>{tmp_path}</code></p>"
