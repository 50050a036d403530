"""Fill the page's template with what a run folder holds."""

from collections.abc import Sequence
from pathlib import Path

from rlfactory.run.atomic_write import write_text
from rlfactory.run.folder import RunFolder
from rlfactory.run.page.content import RunContent, run_content
from rlfactory.run.page.images import EmbeddedImage, embed
from rlfactory.run.page.plots import curve_plots, histogram
from rlfactory.run.page.template import SHARED, fill_page
from rlfactory.run.statistics import Change
from rlfactory.utils.console import number
from rlfactory.utils.text import plural

_TILE = 320  # pixels of a sample's longer side


def write_run_page(
    folder: RunFolder, status: str | None = None, advice: Sequence[str] | None = None
) -> Path:
    """Write index.html into a run folder and return its path; OSError if it can't be written.

    `status` and `advice` are read from the folder where they are not given.
    """
    write_text(folder.page, run_page(run_content(folder, status, advice)))
    return folder.page


def run_page(content: RunContent) -> str:
    """The HTML document: images, curves and texts are inside it, links are relative."""
    before, after, main = content.before, content.after, content.main
    drawn = histogram(before, after, main) if before and after and main else None
    return fill_page(
        SHARED,
        [embedded, number, overall, plural, id],
        run=content,
        curves=curve_plots(content.curves),
        histogram=drawn,
    )


def overall(table: dict[str, dict[str, Change]]) -> list[tuple[str, Change]]:
    """The change of each score over all prompts."""
    return [(name, rows["all"]) for name, rows in table.items()]


def embedded(path: Path | None, largest: int = _TILE) -> EmbeddedImage | None:
    """An image for the page; None where it can't be read."""
    try:
        return None if path is None else embed(path, largest)
    except OSError:
        return None
