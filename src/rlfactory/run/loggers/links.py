"""The pages on which a run's metrics can be looked at, as model cards name them."""

import json
from pathlib import Path

from rlfactory.run.atomic_write import write_text

FILE = "links.json"


def save_link(run_dir: Path, name: str, url: str | None) -> None:
    """Write the address of a service's page of this run; nothing without an address.

    Args:
        run_dir: the run folder.
        name: the service's name, for readers.
        url: the page.
    """
    if url:
        content = {**logger_links(run_dir), name: url}
        write_text(run_dir / FILE, json.dumps(content, indent=1) + "\n")


def logger_links(run_dir: Path) -> dict[str, str]:
    """The addresses that `save_link` has written, by the services' names."""
    path = run_dir / FILE
    links: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return links
