"""What people look at: the samples of each evaluation, and the same prompts over training."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from rlfactory.pillow import to_pil
from rlfactory.run.atomic import write_text
from rlfactory.run.format import number
from rlfactory.run.pictures import grid, strip
from rlfactory.run.samples import sample_table
from rlfactory.run.scores import Scores
from rlfactory.sampler.base import Drawn

STRIP_PROMPTS = 6


class Gallery(ABC):
    """Shows `count` samples of an evaluation, by the score `main`, in `folder`.

    What it is to remember is in files of the folder `kept`, so that a run can go on.
    """

    def __init__(self, folder: Path, main: str, good: float | None, count: int) -> None:
        self.folder, self.kept = folder, folder / "strip"
        self.main, self.good, self.count = main, good, count

    @abstractmethod
    def show(self, name: str, title: str, drawn: Drawn, scores: Scores) -> Path:
        """Write the samples of an evaluation; returns the file."""

    @abstractmethod
    def keep(self, iteration: int, drawn: Drawn) -> None:
        """Remember the first samples of this iteration."""

    @abstractmethod
    def conclude(self, prompts: Sequence[str]) -> None:
        """Write what was remembered side by side."""

    def _tabulate(self, name: str, title: str, drawn: Drawn, scores: Scores) -> None:
        """The samples that are shown once more, with all of their scores, for whoever reads JSON;
        with those of their pictures that were kept before.
        """
        values = {self.main: scores.values[self.main], **scores.values}
        if drawn.kl is not None:
            values["KL"] = drawn.kl.numpy()
        columns = {key: column[: self.count].tolist() for key, column in values.items()}
        texts = None if drawn.texts is None else drawn.texts[: self.count]
        moment = name.rpartition("_")[2]
        places = [self.kept / f"{moment}_{row}.png" for row in range(STRIP_PROMPTS)]
        kept = [place for place in places if place.is_file()]
        table = sample_table(title, scores.prompts[: self.count], texts, columns, kept)
        table.save(self.folder / f"{name}.json")


class Pictures(Gallery):
    """A grid in PNG, each picture above its prompt and score; a strip with a column a moment."""

    def show(self, name: str, title: str, drawn: Drawn, scores: Scores) -> Path:
        """A grid."""
        assert drawn.images is not None
        path = self.folder / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        shown = scores.values[self.main][: self.count].tolist()
        prompts = scores.prompts[: self.count]
        grid(drawn.images[: self.count], prompts, path, title, scores=shown, good=self.good)
        self._tabulate(name, title, drawn, scores)
        return path

    def keep(self, iteration: int, drawn: Drawn) -> None:
        """A column of the strip."""
        assert drawn.images is not None
        self.kept.mkdir(parents=True, exist_ok=True)
        for row, image in enumerate(drawn.images[:STRIP_PROMPTS]):
            to_pil(image).save(self.kept / f"{iteration:06d}_{row}.png")

    def conclude(self, prompts: Sequence[str]) -> None:
        """The strip."""
        found = {path.stem: path for path in sorted(self.kept.glob("*_*.png"))}
        columns = list(dict.fromkeys(name.partition("_")[0] for name in found))
        if not columns:
            return
        count = sum(name.startswith(f"{columns[0]}_") for name in found)
        rows = [[_pixels(found[f"{c}_{row}"]) for c in columns] for row in range(count)]
        heads = [f"iteration {int(column)}" for column in columns]
        strip(rows, prompts[:count], heads, self.folder / "strip.png")


class Texts(Gallery):
    """A table in Markdown, a response a row with its score and KL; a page of the same prompts over
    training.
    """

    def show(self, name: str, title: str, drawn: Drawn, scores: Scores) -> Path:
        """A table."""
        assert drawn.texts is not None
        path = self.folder / f"{name}.md"
        columns = {self.main: scores.values[self.main].tolist()}
        if drawn.kl is not None:
            columns["KL"] = drawn.kl.tolist()
        lines = [f"# {title}", "", f"| {' | '.join(columns)} | prompt | response |"]
        lines.append("|" + "---:|" * len(columns) + "---|---|")
        numbers = zip(*columns.values(), strict=True)
        rows = list(zip(numbers, scores.prompts, drawn.texts, strict=True))
        lines += [_row(*row) for row in rows[: self.count]]
        write_text(path, "\n".join(lines) + "\n")
        self._tabulate(name, title, drawn, scores)
        return path

    def keep(self, iteration: int, drawn: Drawn) -> None:
        """A row for each of the first prompts."""
        assert drawn.texts is not None
        self.kept.mkdir(parents=True, exist_ok=True)
        text = json.dumps(drawn.texts[:STRIP_PROMPTS], ensure_ascii=False, indent=1)
        write_text(self.kept / f"{iteration:06d}.json", text + "\n")

    def conclude(self, prompts: Sequence[str]) -> None:
        """The page."""
        paths = sorted(self.kept.glob("*.json"))
        kept = {int(p.stem): json.loads(p.read_text(encoding="utf-8")) for p in paths}
        lines = ["# The same prompts over training", ""]
        for i, prompt in enumerate(prompts[:STRIP_PROMPTS]):
            lines += [f"## {_plain(prompt)}", "", "| iteration | response |", "|---:|---|"]
            lines += [f"| {k} | {_plain(v[i])} |" for k, v in kept.items()] + [""]
        write_text(self.folder / "strip.md", "\n".join(lines))


def gallery(
    media: Literal["images", "texts"], folder: Path, main: str, good: float | None, count: int
) -> Gallery:
    """The kind that shows such samples."""
    kind = Pictures if media == "images" else Texts
    return kind(folder, main, good, count)


def _pixels(path: Path) -> Tensor:
    with Image.open(path) as image:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def _row(numbers: Sequence[float], prompt: str, text: str) -> str:
    cells = [*map(number, numbers), _plain(prompt), _plain(text)]
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """One line that can't break a table."""
    return " ".join(text.split()).replace("|", "\\|")
