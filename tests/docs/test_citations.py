"""Each algorithm's page cites its papers by arXiv number."""

import re
from pathlib import Path

import pytest

PAGES = sorted(Path(__file__).parents[2].glob("docs/algo/*.md"))


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "index"], ids=str)
def test_a_page_cites_its_paper(page: Path) -> None:
    assert re.search(r"arxiv\.org/abs/\d{4}\.\d{5}", page.read_text(encoding="utf-8"))


def test_v_grpo_is_cited_by_its_number() -> None:
    (page,) = (page for page in PAGES if page.stem == "vgrpo")
    assert "https://arxiv.org/abs/2604.23380" in page.read_text(encoding="utf-8")
