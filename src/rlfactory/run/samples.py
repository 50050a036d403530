"""The samples of an evaluation as a table: what a logger is told of them, kept beside the grid."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlfactory.run.atomic import write_text
from rlfactory.run.format import number

Cell = str | float | None


@dataclass(frozen=True)
class SampleTable:
    """A row for each sample; a number is None where there is no score. Pictures, of the first rows
    or of none, are files.
    """

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    pictures: list[Path] = field(default_factory=list)

    @property
    def heads(self) -> list[str]:
        """The columns, with one of pictures where there are some."""
        return ["image", *self.columns] if self.pictures else self.columns

    def with_pictures(self, opened: Callable[[Path], Any]) -> list[list[Any]]:
        """The rows below `heads`, pictures as `opened` makes them and None where there is none."""
        if not self.pictures:
            return [list(row) for row in self.rows]
        lacking = [None] * (len(self.rows) - len(self.pictures))
        shown = [*map(opened, self.pictures), *lacking]
        return [[picture, *row] for picture, row in zip(shown, self.rows, strict=True)]

    def markdown(self) -> str:
        """The table, without its pictures."""
        rule = "|" + "---|" * len(self.columns)
        lines = [f"**{self.title}**", "", _line(self.columns), rule]
        return "\n".join([*lines, *map(_line, self.rows)])

    def save(self, path: Path) -> None:
        """Write as JSON; pictures by where they lie from there."""
        pictures = [picture.relative_to(path.parent).as_posix() for picture in self.pictures]
        content = {"title": self.title, "columns": self.columns, "rows": self.rows}
        text = json.dumps(content | {"pictures": pictures}, ensure_ascii=False, indent=1)
        write_text(path, text + "\n")

    @classmethod
    def load(cls, path: Path) -> "SampleTable":
        """Read what `save` wrote, without pictures that have gone."""
        content = json.loads(path.read_text(encoding="utf-8"))
        places = [path.parent / name for name in content["pictures"]]
        pictures = places if all(place.is_file() for place in places) else []
        return cls(content["title"], content["columns"], content["rows"], pictures)


def sample_table(
    title: str,
    prompts: Sequence[str],
    texts: Sequence[str] | None,
    scores: Mapping[str, Sequence[float]],
    pictures: Sequence[Path] = (),
) -> SampleTable:
    """Of each sample: its prompt, its text if it is one, and its scores."""
    words = [list(prompts)] if texts is None else [list(prompts), list(texts)]
    columns = ["prompt"] if texts is None else ["prompt", "response"]
    numbers = [[None if math.isnan(x) else x for x in values] for values in scores.values()]
    rows: list[list[Cell]] = [list(row) for row in zip(*words, *numbers, strict=True)]
    return SampleTable(title, [*columns, *scores], rows, list(pictures[: len(rows)]))


def _line(cells: Sequence[Cell]) -> str:
    return f"| {' | '.join(map(_shown, cells))} |"


def _shown(cell: Cell) -> str:
    if isinstance(cell, str):
        return " ".join(cell.split()).replace("|", "\\|")
    return number(math.nan if cell is None else cell)
