"""A Sphinx extension: pages of the site that are no files of docs/, and links to them.

- Pages that a script writes: the reference of the configuration and of the command line, and the
  results of sweeps. They are written into docs/reference/generated, which git ignores, at each
  build.
- Tables within pages: see generated.py.
- Files outside docs/ that a page links to, such as CONTRIBUTING.md or a contract's source, are
  pages too, below docs/reference/generated/files; links to them lead there.
- Docstrings as this package writes them: `Returns:` has no type before a colon.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from generated import filled
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = DOCS / "reference" / "generated"
FILES = GENERATED / "files"
LINK = re.compile(r"\]\((?!\w+:|#|<)([^)#\s]+)(#[^)\s]*)?\)")
STAND_INS = {ROOT / "README.md": DOCS / "index.md"}
"""Pages in the place of files that are for readers of the repository."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml"}


def relinked(text: str, source: Path, page: Path) -> str:
    """The text of the file `source`, shown as the page `page`: its relative links lead to pages.

    A link that leads nowhere stays as it is, for the build to report.
    """

    def replaced(match: re.Match[str]) -> str:
        target = (source.parent / match[1]).resolve()
        if not target.exists():
            return match[0]
        found = os.path.relpath(page_of(target), page.parent)
        return f"]({found}{match[2] or ''})"

    return LINK.sub(replaced, text)


def page_of(path: Path) -> Path:
    """The page that shows a file: itself in docs/, else one that is generated."""
    if path in STAND_INS:
        return STAND_INS[path]
    if path.is_relative_to(DOCS):
        return path
    name = path.relative_to(ROOT).as_posix().replace("/", "_")
    return FILES / (name if path.suffix == ".md" else f"{name}.md")


def linked_files(pages: Iterator[Path]) -> set[Path]:
    """The files outside docs/ that pages link to, and those that these link to in turn."""
    found: set[Path] = set()
    waiting = [*pages]
    while waiting:
        page = waiting.pop()
        for match in LINK.finditer(prose(page)):
            target = (page.parent / match[1]).resolve()
            shown = not target.is_relative_to(DOCS) and target not in STAND_INS
            if target.is_file() and shown and target not in found:
                found.add(target)
                waiting += [target] if target.suffix == ".md" else []
    return found


def prose(page: Path) -> str:
    """The Markdown of a page or of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def page_of_file(path: Path) -> str:
    """The page of a file outside docs/."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return relinked(text, path, page_of(path))
    name = path.relative_to(ROOT).as_posix()
    language = LANGUAGES.get(path.suffix, "text")
    return f"# `{name}`\n\n````{language}\n{text.rstrip()}\n````\n"


def write(path: Path, text: str) -> None:
    """Write a page if it has changed, so that Sphinx reads again only what is new."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def sources() -> Iterator[Path]:
    """The pages and notebooks in docs/ that are no generated ones."""
    found = (p for p in sorted(DOCS.rglob("*")) if p.suffix in (".md", ".ipynb"))
    return (p for p in found if not p.is_relative_to(GENERATED))


def all_pages() -> dict[Path, str]:
    """The text of each generated page."""
    from cli_reference import pages as cli_pages
    from config_reference import pages as config_pages
    from sweep_results import pages as result_pages

    made = {**config_pages(), **cli_pages(), **result_pages()}
    generated = {GENERATED / name: text for name, text in made.items()}
    return {**generated, **{page_of(p): page_of_file(p) for p in linked_files(sources())}}


def generate(app: Sphinx) -> None:
    """Write the generated pages, and remove those that are none any more."""
    pages = all_pages()
    for path, text in pages.items():
        write(path, text)
    for path in GENERATED.rglob("*.md"):
        if path not in pages:
            path.unlink()


def relink(app: Sphinx, name: str, content: list[str]) -> None:
    """Fill in a page's tables, and let the links of a page or notebook in docs/ lead to pages."""
    path = Path(app.env.doc2path(name))
    if path.is_relative_to(GENERATED):
        return
    if path.suffix == ".ipynb":
        notebook = json.loads(content[0])
        # commands in cells, `!rlfactory ...`, are no Python
        notebook["metadata"].setdefault("language_info", {})["pygments_lexer"] = "ipython3"
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = relinked("".join(cell["source"]), path, path)
        content[0] = json.dumps(notebook)
    else:
        content[0] = relinked(filled(content[0]), path, path)


def untyped_returns(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Mark what stands under `Returns:` as text: napoleon takes words before a colon for a type."""
    for number, line in enumerate(lines[:-1]):
        if line.strip() == "Returns:":
            following = lines[number + 1]
            indent = len(following) - len(following.lstrip())
            lines[number + 1] = f"{following[:indent]}: {following.lstrip()}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of it with Sphinx."""
    app.connect("builder-inited", generate)
    app.connect("source-read", relink)
    app.connect("autodoc-process-docstring", untyped_returns, priority=400)  # napoleon's is 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
