"""A part of a page that a script writes: what stands between two marks."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Generated:
    """The part of `page` between `begin` and `end`, which `make` writes."""

    page: Path
    begin: str
    end: str
    make: Callable[[], str]

    def stale(self) -> str:
        """The page as it is."""
        return self.page.read_text(encoding="utf-8")

    def fresh(self) -> str:
        """The page as it should be."""
        before, _, rest = self.stale().partition(self.begin)
        _, _, after = rest.partition(self.end)
        return f"{before}{self.begin}\n\n{self.make()}\n\n{self.end}{after}"

    def main(self, description: str) -> int:
        """Write the page, or compare: 1 where it is stale."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--check", action="store_true", help="write nothing")
        arguments = parser.parse_args()
        if arguments.check:
            return int(self.fresh() != self.stale())
        self.page.write_text(self.fresh(), encoding="utf-8")
        return 0
