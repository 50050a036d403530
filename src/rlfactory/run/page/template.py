"""HTML pages from jinja2 templates, with the head and the style that all pages share.

All text is escaped: prompts and responses can hold anything.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from jinja2 import Environment

SHARED = "rlfactory.run.page"


def fill_page(package: str, functions: Sequence[Callable[..., Any]], **values: Any) -> str:
    """The document of a package's `page.html`, which extends `base.html`, and its `page.css`.

    Args:
        package: the package that holds the two files.
        functions: what the template may call, by their names.
        **values: the variables of the template.
    """
    style = Markup(asset(SHARED, "base.css") + asset(package, "page.css"))
    called = {function.__name__: function for function in functions}
    return _environment(package).get_template("page.html").render(style=style, **called, **values)


def asset(package: str, name: str) -> str:
    """The text of a file of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


@cache
def _environment(package: str) -> "Environment":
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    own, shared = (PackageLoader(*name.rsplit(".", 1)) for name in (package, SHARED))
    return Environment(
        loader=ChoiceLoader([own, shared]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
