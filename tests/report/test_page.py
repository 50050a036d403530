"""The document: complete, self-contained, and safe whatever text stands in the report."""

import base64
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from PIL import Image

from rlfactory.report.page import LARGEST, embed, page, summary, write_page, write_run_page
from rlfactory.report.report import Cell, Report, SampleImage
from rlfactory.report.run_content import RunContent
from rlfactory.report.sample_pairs import Sample, SamplePair
from rlfactory.run.folder import RunFolder
from rlfactory.utils.console import CONTROLS


def test_figures_stand_under_their_rows(report):
    path = report.images[0].path
    html = page(replace(report, images=[SampleImage(row, "c", path) for row in ("b", "a", "b")]))
    assert html.index("<h3>b</h3>") < html.index("<h3>a</h3>")
    assert html.count("<h3>b</h3>") == html.count("<h3>a</h3>") == 1
    assert html.count('alt="b: c"') == 2


EMPTY = {"about": None, "rows": [], "columns": [], "curves": [], "images": [], "texts": {}}
VOID = {"meta", "img", "input"}


class Balanced(HTMLParser):
    """Fails where an element does not end as it should; keeps ids, links and sources."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.ids, self.addresses = [], [], []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_element_ends_and_every_anchor_is_there(report):
    html = page(report)
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids)
    assert set(re.findall(r'href="#(\w+)"', html)) <= set(parser.ids)


def test_nothing_is_asked_of_the_network(report):
    html = page(report)
    assert "default-src 'none'" in html
    assert not re.findall(r"(?:src|href)=\"(?!data:image/|#)", html)
    assert not re.findall(r"@import|url\((?!#)", html)


def test_what_is_hostile_is_shown_and_never_run(report):
    html = page(report)
    assert html.count("<script") == 2
    assert "onerror=alert(1)&gt;" in html
    assert "<img src=x" not in html


def test_control_characters_are_read(report):
    html = page(replace(report, title="\x00\x1b[2J\u202eright\r\n"))
    assert not CONTROLS.findall(html)
    assert "<title>\\x00\\x1b[2J\\u202eright" in html


def test_json_can_not_end_its_element(report):
    rows = [replace(report.rows[0], name="</script><!--&\u2028"), *report.rows[1:]]
    curves = [replace(report.curves[0], row=rows[0].name), *report.curves[1:]]
    html = page(replace(report, rows=rows, curves=curves))
    text = html.split('id="data">')[1].split("</script>")[0]
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text)["rows"][0] == "</script><!--&\u2028"


def test_marks_of_the_template_in_a_report_are_only_text(report):
    assert "<h1>{{ 1 }} {% if %}</h1>" in page(replace(report, title="{{ 1 }} {% if %}"))


def test_a_report_of_nothing_is_still_a_page(report):
    nothing = replace(report, **EMPTY, notes=[], tables=[])
    html = page(nothing)
    assert "<section" not in html
    assert "<h1>" in html


def test_a_lost_image_is_named_and_the_rest_is_there(report):
    report.images[0].path.unlink()
    html = page(report)
    assert html.count('<figure style="--ratio: ') == 1
    assert "An image of V-GRPO is left out" in html


def test_the_file(report, tmp_path):
    path = write_page(report, tmp_path)
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == page(report)


def section(report: Report, anchor: str) -> str:
    """The HTML of one section."""
    return page(report).split(f'<section aria-labelledby="{anchor}">')[1].split("</section>")[0]


def test_where_it_is_from_and_what_it_costs(report):
    html = page(report)
    assert "V-GRPO (2025), Table 6" in html
    assert "400 GPU hours" in html
    assert summary(report) == "3 rows, 2 of them measured in 3 runs"
    assert summary(report) in html


def test_paper_and_ours_side_by_side(report):
    table = section(report, "results")
    assert "<td>0.97</td><td>0.80 ± 0.03</td>" in table
    assert table.count(": paper<") == table.count(": ours<") == 2
    assert ">KL<" in table


def test_what_is_best_stands_out(report):
    assert 'class="clear"' not in section(report, "results")
    cells = [{n: Cell(c.paper, c.values * 4) for n, c in row.cells.items()} for row in report.rows]
    rows = [replace(row, cells=own) for row, own in zip(report.rows, cells, strict=True)]
    assert '<td class="clear">0.80 ± 0.00</td>' in section(replace(report, rows=rows), "results")


def test_what_stands_out_in_a_further_table_does_so_on_the_page(report):
    table = section(report, "against-the-first-row")
    assert table.count('<td class="clear">+0.10</td>') == table.count('class="clear"') == 1
    assert '<td class="words">Flow-GRPO, all steps</td>' in table


def test_rows_of_curves_carry_their_colour(report):
    one = section(replace(report, curves=report.curves[1:2]), "results")
    assert one.count('class="chip"') == one.count("var(--c0)") == 1


def test_colours_come_round_with_another_chip(report):
    rows = [replace(report.rows[0], name=f"row {i}") for i in range(12)]
    curves = [replace(report.curves[0], row=row.name) for row in rows]
    table = section(replace(report, rows=rows, curves=curves), "results")
    assert table.count('class="chip again" style="--c: var(--c1)"') == 1
    assert table.count("var(--c1)") == 2


def test_responses_of_each_row_fold_and_the_first_row_is_open(report):
    pair = SamplePair("p", Sample(0.5, "old"), Sample(0.7, "new"))
    texts = {"b": [pair, pair], "a": [pair]}
    html = section(replace(report, texts=texts), "responses")
    assert html.index(">b<") < html.index(">a<")
    assert html.count("<details") == 2
    assert html.count('<details class="wide" open>') == 1
    assert "2 prompts" in html


def test_an_empty_response_has_no_heading(report):
    pair = SamplePair("p", Sample(float("nan"), " "), Sample(0.7, "new"))
    html = section(replace(report, texts={"a": [pair]}), "responses")
    assert html.count("<h3>") == 1
    assert "<h3>after <b>0.700</b></h3>" in html


def parsed(html: str) -> Balanced:
    page = Balanced()
    page.feed(html)
    assert page.open == []
    return page


def test_everything_is_inside_and_links_lead_to_files_beside_it(images: RunFolder) -> None:
    path = write_run_page(RunContent(images, "done", ["go <slow>"]))
    assert path == images.path / "index.html"
    html = path.read_text(encoding="utf-8")
    addresses = parsed(html).addresses
    assert sum(address.startswith("data:image/") for address in addresses) == 10
    others = [a for a in addresses if not a.startswith(("data:", "#"))]
    assert "metrics.jsonl" in others
    assert "summary.md" in others
    assert all((images.path / a).exists() for a in others if a != "summary.md")
    assert not re.search(r"https?://(?!www\.w3\.org)", html)
    assert "<script" not in html


def test_prompts_stand_in_full_with_their_scores(images: RunFolder) -> None:
    html = write_run_page(RunContent(images)).read_text(encoding="utf-8")
    assert "a &lt;b&gt;red&lt;/b&gt; circle" in html
    assert "<b>red</b>" not in html
    assert "一个红色的圆形" in html
    assert "before <b>0.200</b>" in html
    assert "after <b>0.600</b>" in html
    assert "prompts=&#39;a &amp; b&#39;" in html
    assert "NVIDIA H200" in html
    assert "By category of prompts" in html


def test_completions_stand_before_and_after(texts: RunFolder) -> None:
    html = write_run_page(RunContent(texts)).read_text(encoding="utf-8")
    parsed(html)
    assert "&lt;/script&gt; text 0 of 0" in html
    assert "&lt;/script&gt; text 0 of 4" in html
    assert "data:image" not in html


def test_a_run_without_results_says_so(tmp_path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    html = write_run_page(RunContent(folder)).read_text(encoding="utf-8")
    parsed(html)
    assert "Not evaluated yet." in html


def decoded(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


def test_a_large_image_is_made_moderate(tmp_path):
    Image.new("RGB", (3200, 800), "red").save(tmp_path / "a.png")
    embedded = embed(tmp_path / "a.png")
    assert (embedded.width, embedded.height) == (LARGEST, 400) == decoded(embedded.address).size
    assert not embedded.is_tiny


def test_noise_is_webp_and_flat_colour_what_is_smaller(tmp_path):
    Image.effect_noise((200, 200), 90).save(tmp_path / "a.png")
    embedded = embed(tmp_path / "a.png")
    assert embedded.address.startswith("data:image/webp;base64,")
    assert len(embedded.address) < (tmp_path / "a.png").stat().st_size


@pytest.mark.parametrize("content", [b"", b"not an image", None])
def test_what_is_no_image_is_an_oserror(tmp_path, content):
    if content is not None:
        (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(OSError, match=r"a\.png"):
        embed(tmp_path / "a.png")


def test_half_an_image_is_an_oserror(tmp_path):
    Image.effect_noise((99, 99), 90).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(OSError, match="truncated"):
        embed(tmp_path / "a.png")


def test_an_image_can_be_made_smaller(tmp_path):
    Image.new("RGB", (400, 100), "red").save(tmp_path / "a.png")
    embedded = embed(tmp_path / "a.png", 100)
    assert (embedded.width, embedded.height) == (100, 25)
