"""index.html: everything about a run on one page that needs nothing beside it."""

from rlfactory.run.page.write import write_run_page

__all__ = ["write_run_page"]
