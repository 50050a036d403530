"""The page: complete, self-contained, and safe whatever text stands in a run."""

import re
from html.parser import HTMLParser

from rlfactory.run.folder import RunFolder
from rlfactory.run.page import write_run_page

VOID = {"meta", "img", "input"}


class Balanced(HTMLParser):
    """Fails where an element does not end as it should; keeps links and sources."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag, attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(html: str) -> Balanced:
    page = Balanced()
    page.feed(html)
    assert page.open == []
    return page


def test_everything_is_inside_and_links_lead_to_files_beside_it(images: RunFolder) -> None:
    path = write_run_page(images, "done", ["go <slow>"])
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
    html = write_run_page(images).read_text(encoding="utf-8")
    assert "a &lt;b&gt;red&lt;/b&gt; circle" in html
    assert "<b>red</b>" not in html
    assert "一个红色的圆形" in html
    assert "before <b>0.200</b>" in html
    assert "after <b>0.600</b>" in html
    assert "prompts=&#39;a &amp; b&#39;" in html
    assert "NVIDIA H200" in html
    assert "By category of prompts" in html


def test_completions_stand_before_and_after(texts: RunFolder) -> None:
    html = write_run_page(texts).read_text(encoding="utf-8")
    parsed(html)
    assert "&lt;/script&gt; text 0 of 0" in html
    assert "&lt;/script&gt; text 0 of 4" in html
    assert "data:image" not in html


def test_a_run_without_results_says_so(tmp_path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    html = write_run_page(folder).read_text(encoding="utf-8")
    parsed(html)
    assert "Not evaluated yet." in html
