"""The documentation site: pages are found, generated ones complete, the build is strict."""

import html
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from rlfactory.config.options import options
from rlfactory.config.schema.root import GROUPS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SCRIPTS = str(ROOT / "scripts" / "docs")
OTHER = {"genindex.html", "py-modindex.html", "search.html"}
LINES = 110
"""Two screens, the most that a page at the top of docs/ may have; tables stand in reference/."""


def script(name: str) -> ModuleType:
    """A module of scripts/docs."""
    sys.path.insert(0, SCRIPTS)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(SCRIPTS)


@pytest.fixture(scope="module")
def config_pages() -> dict[str, str]:
    pages: dict[str, str] = script("config_reference").pages()
    return pages


def leaves(node: object, above: str = "") -> Iterator[str]:
    if isinstance(node, dict) and node:
        for name, value in node.items():
            yield from leaves(value, f"{above}.{name}" if above else str(name))
    else:
        yield above


def test_the_reference_has_every_key_of_the_root(config_pages: dict[str, str]) -> None:
    content = yaml.safe_load((ROOT / "conf" / "config.yaml").read_text())
    content = {name: v for name, v in content.items() if name not in ("defaults", "hydra")}
    page = config_pages["config/keys.md"]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| `?.*?`? \| (.*?) \|", page, re.MULTILINE))
    assert [key for key in leaves(content) if not rows.get(key)] == []


@pytest.mark.parametrize("group", GROUPS)
def test_the_reference_has_every_option(group: str, config_pages: dict[str, str]) -> None:
    page = config_pages[f"config/{group}.md"]
    for name, path in options(group).items():
        assert f"## `{group}={name}`\n" in page
        own = (yaml.safe_load(path.read_text()) or {}).get(group, {})
        found = [key for key in leaves(own, group) if not key.endswith("_target_")]
        assert [key for key in found if f"`{key}`" not in page] == [], name


def test_keys_have_their_type_default_and_meaning(config_pages: dict[str, str]) -> None:
    page = config_pages["config/algo.md"]
    row = "| `algo.weighting` | `none` | none \\| tempflow \\| tempflow_noise | Weight w of a step"
    assert row in page
    assert "Selects `window=fixed`, `advantage=group`, `dynamics=flow_sde`" in page
    assert "Sets `iterations=80`" in page


def test_the_commands_are_those_of_the_help() -> None:
    pages = script("cli_reference").pages()
    assert "--until N" in pages["commands.md"]
    assert "## `rlfactory export`" in pages["commands.md"]


def test_the_diagrams_are_not_stale() -> None:
    assert script("diagrams").stale() == [], "python scripts/docs/diagrams.py writes them anew"


def test_a_page_s_table_is_made_where_its_mark_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    generated = script("generated")
    page = (DOCS / "migrating" / "drlx.md").read_text(encoding="utf-8")
    text = generated.filled(page)
    assert "| `num_epochs` | `iterations` |" in text
    assert "<!-- generated" not in text
    assert text.startswith(page[: page.index("<!--")])


def test_the_functions_of_all_marks_exist() -> None:
    marks = {
        mark
        for page in DOCS.rglob("*.md")
        for mark in script("generated").MARK.findall(page.read_text())
    }
    found = {mark.split()[0].split(".")[0]: mark.split()[0].split(".")[1] for mark in marks}
    assert all(callable(getattr(script(name), function)) for name, function in found.items())
    assert {"names", "peers", "defaults", "requirements", "leaderboard"} <= {*found}


def test_the_requirements_have_a_row_a_pair() -> None:
    row = script("requirements")._row("model=sd35", "algo=nft")
    assert row.startswith("| `model=sd35 algo=nft` | ")
    assert "–" not in row


def test_links_out_of_docs_lead_to_pages() -> None:
    pages = script("site_pages")
    source = DOCS / "extend" / "README.md"
    text = "[`a`](../../CONTRIBUTING.md#tests) [b](reward.md) [c](https://arxiv.org/abs/1)"
    assert pages.relinked(text, source, source) == (
        "[`a`](../reference/generated/files/CONTRIBUTING.md#tests) [b](reward.md)"
        " [c](https://arxiv.org/abs/1)"
    )
    assert pages.relinked("[a](nowhere.md)", source, source) == "[a](nowhere.md)"


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_guide_is_at_most_two_screens_long(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= LINES, "detail: docs/reference"


def test_the_notebooks_are_listed_in_the_order_to_read_them() -> None:
    index = (DOCS / "notebooks" / "index.md").read_text(encoding="utf-8")
    toctree = re.search(r"```{toctree}\n.*?\n\n(.*?)\n```", index, re.DOTALL)
    assert toctree is not None
    assert toctree[1].split() == [*script("notebooks").ORDER]


class _Links(HTMLParser):
    """The targets of links, and everything that a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and values.get("href"):
            self.links.add(html.unescape(values["href"] or "").partition("#")[0])
        elif tag in ("link", "script", "img"):
            self.loaded.add(values.get("src") or values.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; the build fails on any warning."""
    folder = tmp_path_factory.mktemp("site")
    build = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-d",
        str(folder / "cache"),
    ]
    done = subprocess.run([*build, str(DOCS), str(folder / "html")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.mark.slow
def test_the_site_is_complete_and_loads_nothing_from_elsewhere(site: Path) -> None:
    found: dict[Path, set[Path]] = {}
    for page in (p for p in site.rglob("*.html") if "_static" not in p.parts):
        parser = _Links()
        parser.feed(page.read_text(encoding="utf-8"))
        assert [u for u in parser.loaded if "//" in u and not u.startswith("data:")] == [], page
        local = {link for link in parser.links if link and ":" not in link}
        found[page] = {(page.parent / link).resolve() for link in local}
        assert [link for link in found[page] if not link.exists()] == [], page
    start = site / "index.html"
    near = found[start].union(*(found.get(page, set()) for page in found[start]))
    assert [p for p in found if p not in near and p.name not in OTHER] == []
    assert (site / "searchindex.js").stat().st_size > 100_000
    assert "clip_rang" in (site / "searchindex.js").read_text(encoding="utf-8")
