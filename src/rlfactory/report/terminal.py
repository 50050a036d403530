"""Tables of words in the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlfactory.report.table import Words

_FILE_WIDTH = 160
_NARROWEST = 16


class Terminal:
    """Prints with the terminal's width; where there is none, or numbers would be cut, with more."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console.width = _FILE_WIDTH

    def heading(self, text: str) -> None:
        """What follows is about this."""
        self.console.print(text, style="bold", markup=False, soft_wrap=True)

    def table(self, words: Words | None, title: str | None = None) -> None:
        """A table below its title, if there is one."""
        if words is None:
            return
        self.console.print()
        if title is not None:
            self.heading(title)
        table, before = rich_table(words), self.console.width
        anything = self.console.options.update(max_width=10_000)
        self.console.width = max(before, self.console.measure(table, options=anything).minimum)
        self.console.print(table)
        self.console.width = before

    def notes(self, notes: Sequence[str]) -> None:
        """Sentences below a table."""
        self.console.print()
        for note in notes:
            self.console.print(note, style="dim", markup=False, soft_wrap=True)


def rich_table(words: Words) -> Table:
    """Only what is left-aligned wraps, and not to slivers: a number is never cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="bold")
    for number, head in enumerate(words.heads):
        texts = [head, *(line[number] for line in words.lines)]
        longest = max(map(len, texts))
        if number == 0 or head in words.left:
            table.add_column(escape(head), min_width=min(_NARROWEST, longest))
        else:
            # its head may wrap
            widest = max(map(len, [*texts[1:], *head.split()]))
            table.add_column(escape(head), justify="right", min_width=widest)
    for line in words.lines:
        table.add_row(*map(escape, line))
    return table
