"""The samples of evaluations in a run folder: a table of each, and the images that were kept."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict

from rlfactory.run.atomic_write import write_json
from rlfactory.utils.console import number
from rlfactory.utils.data_files import FileError, read_json
from rlfactory.utils.text import plain, table_lines

STRIP_PROMPTS = 6
"""How many prompts' samples are kept of every evaluation and preview."""
_IMAGE_NAME = re.compile(r"(\d{6,})_(\d+)", re.ASCII)
Cell = str | float | None
REMEDY = "remove it: it shows samples, and nothing is computed from it"


class _Content(TypedDict):
    """The content of a table's file."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    pictures: list[str]


@dataclass(frozen=True)
class SampleTable:
    """A row for each sample: its prompt, its response if it is a text, and its scores.

    A score that could not be computed is None. `pictures` are the image files of the first rows.
    """

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    pictures: list[Path] = field(default_factory=list)

    @property
    def heads(self) -> list[str]:
        """The column names, with one for images if there are any."""
        return ["image", *self.columns] if self.pictures else self.columns

    def with_images(self, to_image: Callable[[Path], Any]) -> list[list[Any]]:
        """The rows, images first: `to_image(path)`, or None for rows without an image file."""
        if not self.pictures:
            return [list(row) for row in self.rows]
        images = map(to_image, self.pictures)
        return [[next(images, None), *row] for row in self.rows]

    def markdown(self) -> str:
        """The table in Markdown, without images."""
        heads, rows = [*map(_markdown, self.columns)], [[*map(_markdown, r)] for r in self.rows]
        return "\n".join([f"**{self.title}**", "", *table_lines("l" * len(heads), heads, rows)])

    def save(self, path: Path) -> None:
        """Write as JSON; paths of images are relative to its folder."""
        pictures = [picture.relative_to(path.parent).as_posix() for picture in self.pictures]
        content = {"title": self.title, "columns": self.columns, "rows": self.rows}
        write_json(path, content | {"pictures": pictures})

    @classmethod
    def load(cls, path: Path) -> "SampleTable":
        """Read what `save` wrote; without images if one of their files is missing.

        Raises:
            FileNotFoundError: there is no such file.
            FileError: it is no table, or names images outside its folder.
        """
        content = read_json(path, _Content, remedy=REMEDY)
        columns, rows = content["columns"], content["rows"]
        if any(len(row) != len(columns) for row in rows) or "prompt" not in columns:
            raise FileError(path, "has rows of other columns than it names", REMEDY)
        names = [PurePosixPath(name) for name in content["pictures"]]
        files = [path.parent / name for name in names]
        if len(files) > len(rows) or any(n.is_absolute() or ".." in n.parts for n in names):
            raise FileError(path, "names images that are not its own", REMEDY)
        pictures = files if all(file.is_file() for file in files) else []
        return cls(content["title"], columns, rows, pictures)


def sample_table(
    title: str,
    prompts: Sequence[str],
    texts: Sequence[str] | None,
    scores: Mapping[str, Sequence[float]],
    pictures: Sequence[Path] = (),
) -> SampleTable:
    """The table of N samples: `scores[name]` has one number for each, NaN if it has no score."""
    columns: dict[str, Sequence[Cell]] = {"prompt": prompts}
    columns |= {} if texts is None else {"response": texts}
    for name, values in scores.items():
        columns[name] = [None if math.isnan(x) else x for x in values]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return SampleTable(title, [*columns], rows, list(pictures[: len(rows)]))


def _markdown(cell: Cell) -> str:
    if isinstance(cell, str):
        return plain(cell)
    return number(math.nan if cell is None else cell)


def image_file(samples: Path, iteration: int, row: int) -> Path:
    """The image of an evaluation's or preview's prompt number `row`, in a folder of samples."""
    return samples / "strip" / f"{iteration:06d}_{row}.png"


def kept_images(samples: Path) -> dict[tuple[int, int], Path]:
    """The images that a run kept in its folder of samples, by iteration and number of the prompt.

    Files of other names are somebody else's.
    """
    names = (_IMAGE_NAME.fullmatch(path.stem) for path in (samples / "strip").glob("*_*.png"))
    keys = ((int(name[1]), int(name[2])) for name in names if name)
    return {key: image_file(samples, *key) for key in keys}
