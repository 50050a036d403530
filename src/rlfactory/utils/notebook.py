"""Whether this process is a notebook's kernel, and output in its cells."""

import sys
from importlib import import_module
from typing import Any


def notebook_shell() -> Any:
    """IPython's shell where it belongs to a kernel (Jupyter, Colab, VS Code); else None."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell if hasattr(shell, "kernel") else None


def show_html(html: str) -> Any:
    """Show HTML below the cell that runs; returns a handle for `replace_html`."""
    output: Any = import_module("IPython.display")
    return output.display(output.HTML(html), display_id=True)


def replace_html(handle: Any, html: str) -> None:
    """Replace what `show_html` has shown."""
    output: Any = import_module("IPython.display")
    handle.update(output.HTML(html))
