"""The document: complete, self-contained, and safe whatever text stands in the report."""

import base64
import io
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from PIL import Image

from rlfactory.report.page import (
    LARGEST,
    best_row,
    embed,
    interval,
    is_gain,
    page,
    runs_counted,
    status_kind,
    summary,
    write_page,
    write_run_page,
)
from rlfactory.report.report import Comparison, Report, ReportRow, SampleImage
from rlfactory.report.run_content import run_content
from rlfactory.report.sample_pairs import Sample, SamplePair
from rlfactory.run.folder import RunFolder
from rlfactory.sweep.table import Column
from rlfactory.utils.text import plural


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
    nothing = replace(report, **EMPTY, differences={}, notes=[], comparisons=[])
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
    assert "V-GRPO (2025) · Table 6" in html
    assert "400 GPU-hours at full size" in html
    assert summary(report) == "3 rows, 2 of them measured in 3 runs"
    assert summary(report) in html


def test_an_unknown_budget_and_an_empty_tolerance_are_left_out(report):
    about = replace(report.about, gpu_hours=None, tolerance="")
    html = page(replace(report, about=about))
    assert "<dt>Budget" not in html
    assert "<dt>Tolerance" not in html


def test_plain_runs_have_no_source(report):
    assert 'class="eyebrow"' not in page(replace(report, about=None))


def test_paper_and_ours_side_by_side(report):
    table = section(report, "results")
    assert '<td class="paper first">0.97</td>' in table
    assert 'title="Each run: 0.81, 0.79"><span>0.80</span><small>± 0.03</small>' in table


def test_a_column_that_no_paper_has_is_ours_alone(report):
    table = section(report, "results")
    assert table.count(">paper<") == 2
    assert table.count(">ours<") == 2
    assert 'rowspan="2" class="first">KL' in table


def repeated(report: Report, column: str, count: int = 3) -> list[ReportRow]:
    """The rows as if each number were of `count` runs."""
    cells = [replace(row.cells[column], n=count) for row in report.rows]
    return [replace(r, cells={column: c}) for r, c in zip(report.rows, cells, strict=True)]


def test_the_best_follows_the_columns_sense(report):
    geneval, _, kl = report.columns
    rows = repeated(report, "geneval")
    assert best_row(geneval, rows) == "V-GRPO"
    assert best_row(kl, repeated(report, "kl")) == "Flow-GRPO, all steps"
    assert best_row(replace(geneval, better="neither"), rows) is None
    assert best_row(replace(geneval, better="declared"), rows) is None
    assert best_row(geneval, rows[:1]) is None


def test_below_three_runs_a_row_there_is_no_winner(report):
    geneval = report.columns[0]
    assert [row.cells["geneval"].n for row in report.rows] == [2, 1, 0]
    assert best_row(geneval, report.rows) is None
    assert best_row(geneval, repeated(report, "geneval", 2)) is None
    three = repeated(report, "geneval")
    assert best_row(geneval, [three[0], report.rows[1]]) is None
    assert 'class="ours best' not in page(report)


@pytest.mark.parametrize(
    ("better", "low", "high", "n", "gained"),
    [
        ("higher", 0.1, 0.2, 3, True),
        ("higher", -0.2, -0.1, 3, False),
        ("lower", -0.2, -0.1, 3, True),
        ("lower", 0.1, 0.2, 3, False),
        ("higher", -0.1, 0.2, 3, False),
        ("higher", 0.1, 0.2, 2, False),
        ("higher", None, None, 3, False),
    ],
)
def test_a_difference_stands_out_where_the_row_gained(better, low, high, n, gained):
    column = Column("a", "A", "eval/a", better)
    assert is_gain(Comparison("r", "o", "a", 0.1, low, high, n, None, None, None), column) == gained


def test_runs_counted(report):
    two, one = (report.rows[i].cells["geneval"] for i in (0, 1))
    assert runs_counted(report.rows[0]) == "2"
    assert runs_counted(report.rows[2]) == "–"
    assert runs_counted(replace(report.rows[0], cells={"a": two, "b": one})) == "1–2"


def test_rows_of_curves_carry_their_colour(report):
    one = section(replace(report, curves=report.curves[1:2]), "results")
    assert one.count('class="chip"') == one.count("var(--c0)") == 1


def test_colours_come_round_with_another_chip(report):
    rows = [replace(report.rows[0], name=f"row {i}") for i in range(12)]
    curves = [replace(report.curves[0], row=row.name) for row in rows]
    table = section(replace(report, rows=rows, curves=curves, differences={}), "results")
    assert table.count('class="chip again" style="--c: var(--c1)"') == 1
    assert table.count("var(--c1)") == 2


@pytest.mark.parametrize(
    ("words", "kind"),
    [("2 done", "good"), ("1 done, 1 failed", "bad"), ("1 running", "open"), ("", "none")],
)
def test_status_kinds(words, kind):
    assert status_kind(words) == kind


def test_a_difference_whose_interval_leaves_out_zero_stands_out(report):
    unclear = [replace(report.comparisons[0], low=-0.1)]
    assert '<td class="best"><span>0.10</span>' in section(report, "comparisons")
    assert 'class="best"' not in section(replace(report, comparisons=unclear), "comparisons")


def test_few_keys_go_across_and_many_go_down(report):
    few = section(replace(report, differences={"a.b": ["1", "2", "3"]}), "configuration")
    keys = {key: ["1", "2", "3"] for key in "abcd"}
    many = section(replace(report, differences=keys), "configuration")
    assert '<th scope="col"><code>a.b</code></th>' in few
    assert '<th scope="row" class="name"><code>a</code></th>' in many


def test_what_is_as_in_the_first_row_is_faint(report):
    table = section(replace(report, differences={"k": ["1", "1", "2"]}), "configuration")
    assert table.count('<span class="same">1</span>') == 1
    assert "<span>2</span>" in table


def test_responses_of_each_row_fold_and_the_first_row_is_open(report):
    pair = SamplePair("p", Sample(0.5, "old"), Sample(0.7, "new"))
    texts = {"b": [pair, pair], "a": [pair]}
    html = section(replace(report, texts=texts), "texts")
    assert html.index(">b<") < html.index(">a<")
    assert html.count("<details") == 2
    assert html.count('<details class="wide" open>') == 1
    assert "2 prompts" in html


def test_an_empty_response_has_no_heading(report):
    pair = SamplePair("p", Sample(float("nan"), " "), Sample(0.7, "new"))
    html = section(replace(report, texts={"a": [pair]}), "texts")
    assert html.count("<h3>") == 1
    assert "<h3>after <b>0.700</b></h3>" in html


def parsed(html: str) -> Balanced:
    page = Balanced()
    page.feed(html)
    assert page.open == []
    return page


def test_everything_is_inside_and_links_lead_to_files_beside_it(images: RunFolder) -> None:
    path = write_run_page(run_content(images, "done", ["go <slow>"]))
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
    html = write_run_page(run_content(images)).read_text(encoding="utf-8")
    assert "a &lt;b&gt;red&lt;/b&gt; circle" in html
    assert "<b>red</b>" not in html
    assert "一个红色的圆形" in html
    assert "before <b>0.200</b>" in html
    assert "after <b>0.600</b>" in html
    assert "prompts=&#39;a &amp; b&#39;" in html
    assert "NVIDIA H200" in html
    assert "By category of prompts" in html


def test_completions_stand_before_and_after(texts: RunFolder) -> None:
    html = write_run_page(run_content(texts)).read_text(encoding="utf-8")
    parsed(html)
    assert "&lt;/script&gt; text 0 of 0" in html
    assert "&lt;/script&gt; text 0 of 4" in html
    assert "data:image" not in html


def test_a_run_without_results_says_so(tmp_path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    html = write_run_page(run_content(folder)).read_text(encoding="utf-8")
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


@pytest.mark.parametrize(
    ("mean", "low", "high", "text"),
    [
        (0.5, 0.4, 0.6, "± 0.10"),
        (0.5, 0.45, 0.7, "[0.45, 0.70]"),
        (0.5, None, None, ""),
        (None, 0.1, 0.2, ""),
        (0.5, -math.inf, math.inf, ""),
    ],
)
def test_an_interval_is_a_half_width_only_where_it_is_symmetric(mean, low, high, text):
    assert interval(mean, low, high, 2) == text


def test_plural():
    assert [plural(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
