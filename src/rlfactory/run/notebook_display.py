"""A live display in a notebook: text of rich as HTML, replaced as it changes."""

import io
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType

from rlfactory.utils.notebook import replace_html, show_html

_STYLE = '<pre style="line-height:normal;white-space:pre-wrap">{code}</pre>'
_WIDTH = 110
_SECONDS = 0.5


class NotebookDisplay:
    """Shows what `render` returns, as `rich.live.Live` does on a terminal.

    It needs no widgets, so it works wherever IPython shows HTML. Each update is a message to the
    browser, so there are at most two a second.
    """

    def __init__(self, render: Callable[[], RenderableType]) -> None:
        self._render = render
        self._handle: Any = None
        self._shown = 0.0

    def start(self) -> None:
        """Show it below the cell."""
        self._handle = show_html(as_html(self._render()))

    def refresh(self) -> None:
        """Show the present state, unless the last update was less than half a second ago."""
        if time.monotonic() - self._shown >= _SECONDS:
            self._update()

    def stop(self) -> None:
        """Show the last state, which stays."""
        self._update()

    def _update(self) -> None:
        self._shown = time.monotonic()
        replace_html(self._handle, as_html(self._render()))


def as_html(renderable: RenderableType) -> str:
    """What rich prints on a terminal of 110 columns, as HTML."""
    # in a kernel rich would also display each line that it prints
    console = Console(
        file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, force_jupyter=False
    )
    console.print(renderable)
    return console.export_html(inline_styles=True, code_format=_STYLE)
