"""The pages on which a run's metrics can be looked at, as model cards name them."""

import json
from pathlib import Path

from rlfactory.run.atomic_write import write_text
from rlfactory.utils.data_files import read_json

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
    if not path.exists():
        return {}
    links: dict[str, str] = read_json(path, dict[str, str], remedy="remove it")
    return links
