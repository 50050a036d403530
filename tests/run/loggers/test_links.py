"""The pages of a run's metrics."""

from pathlib import Path

from rlfactory.run.loggers.links import logger_links, save_link


def test_each_service_has_one_page(tmp_path: Path) -> None:
    assert logger_links(tmp_path) == {}
    save_link(tmp_path, "A", None)
    assert list(tmp_path.iterdir()) == []
    for name, url in (("A", "u"), ("B", "v"), ("A", "w")):
        save_link(tmp_path, name, url)
    assert logger_links(tmp_path) == {"A": "w", "B": "v"}
