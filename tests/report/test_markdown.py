import re
from collections.abc import Callable
from pathlib import Path

from rlfactory.report.markdown import plain, write_markdown
from rlfactory.report.sources import reports_of

Make = Callable[..., Path]


def test_a_page_holds_all_that_a_report_has(tmp_path: Path, filled_sweep: Make) -> None:
    (report,) = reports_of([filled_sweep(tmp_path / "s")]).values()
    text = write_markdown(report, tmp_path, "curves.png").read_text()
    assert "# Shapes & shares (tiny)" in text
    assert "- Paper: A paper, Table 1" in text
    assert "- Budget of the full form: 12.5 GPU hours" in text
    assert "| NFT | 0.900 | 0.850 ± 0.635 | 2 | 4 | 4k | 2 done | fast |" in text
    assert "![curves over training](curves.png)" in text
    assert "## Against the first row" in text
    assert "| algo | nft | grpo | – |" in text


def test_pictures_lie_beside_the_page(tmp_path: Path, make_run: Make) -> None:
    (report,) = reports_of([make_run(tmp_path / "a", media="images")]).values()
    for _ in range(2):
        text = write_markdown(report, tmp_path / "a").read_text()
    links = re.findall(r"!\[.*\]\((.*)\)", text)
    assert links == ["images/00_strip.png", "images/01_eval_000004.png"]
    assert all((tmp_path / "a" / link).is_file() for link in links)


def test_texts_cannot_break_the_table(tmp_path: Path, make_run: Make) -> None:
    (report,) = reports_of([make_run(tmp_path / "a", media="texts")]).values()
    text = write_markdown(report, tmp_path).read_text()
    assert r"a \<b>bold\</b> \| star, 0" in text


def test_plain_text_is_one_line_without_marks() -> None:
    assert plain("a_b *c*\n| `d` <e> \\") == r"a\_b \*c\* \| \`d\` \<e> " + "\\\\"
