"""A report as one HTML page that needs nothing beside it."""

from rlfactory.report.html.write import write_page

__all__ = ["write_page"]
