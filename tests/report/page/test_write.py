"""The document as a whole: complete, self-contained, and safe whatever stands in the report."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

from rlfactory.report.page import write_page
from rlfactory.report.page.write import embedded_json, page

EMPTY = {"about": None, "rows": [], "columns": [], "curves": [], "pictures": [], "texts": []}
VOID = {"meta", "img"}


class Balanced(HTMLParser):
    """Fails where an element does not end as it should."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.ids = [], []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
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


def test_json_can_not_end_its_element():
    text = embedded_json({"a": "</script><!--&\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--&\u2028"}


def test_marks_of_the_template_in_a_report_are_only_text(report):
    assert "<h1>%%BODY%% %%</h1>" in page(replace(report, title="%%BODY%% %%"))


def test_a_report_of_nothing_is_still_a_page(report):
    nothing = replace(report, **EMPTY, differences={}, notes=[], comparisons=[])
    html = page(nothing)
    assert "<section" not in html
    assert "<h1>" in html


def test_a_lost_picture_is_named_and_the_rest_is_there(report):
    report.pictures[0].path.unlink()
    html = page(report)
    assert html.count("<figure><button") + html.count('<figure class="wide"><button') == 1
    assert "A picture of V-GRPO is left out" in html


def test_the_file(report, tmp_path):
    path = write_page(report, tmp_path)
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == page(report)
