"""Files that show a run's results: the samples of each evaluation, and of the same prompts over
training, as images or Markdown; and curves, page and summary at its end.

Training imports this module alone of the package.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from rlfactory.prompts.ops.pictured import PicturedText
from rlfactory.report.image_grid import grid, sheet
from rlfactory.report.sample_pairs import readable_rows, samples_at
from rlfactory.rollout import GeneratedSamples
from rlfactory.run.atomic_write import new_file, write_json, write_text
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import read
from rlfactory.run.samples import STRIP_PROMPTS, SampleTable, image_file, kept_images, sample_table
from rlfactory.run.scores import Scores, read_sets, set_pairs
from rlfactory.utils.data_files import FileError, read_json
from rlfactory.utils.images import from_pil, picture, save_animation, to_pil
from rlfactory.utils.text import plain, table_lines

_LARGEST = 512  # pixels of a side of the images that only the page's pairs show
_MOVING = 8  # videos of an animation, with frames of at most so many pixels a side
_MOVING_LARGEST = 256


class Gallery:
    """Writes the samples of evaluations, and the same prompts' samples over training (the strip).

    Images become a PNG grid with prompts and scores, and a strip with a column per iteration; of
    videos these show contact sheets, and a GIF moves the first ones. Texts become Markdown tables.

    It shows the score `main`, of which `good` and more is good, of an evaluation's first `count`
    samples. What the strip needs is kept in files of `folder/strip`, so that a resumed run
    continues it; `folder` is `samples` of the run.
    """

    def __init__(
        self, folder: Path, main: str, good: float | None, count: int, seed: int = 0
    ) -> None:
        self.folder, self.kept = folder, folder / "strip"
        self.main, self.good, self.count, self.seed = main, good, count, seed

    def show(self, name: str, title: str, drawn: GeneratedSamples, scores: Scores) -> Path:
        """Write an evaluation's samples to a file `name`, with a title, and return its path."""
        self.folder.mkdir(exist_ok=True)
        if drawn.images is None:
            path = self.folder / f"{name}.md"
            write_text(path, f"{self._table(name, title, drawn, scores).markdown()}\n")
            return path
        path = self.folder / f"{name}.png"
        shown = scores.values[self.main][: self.count].tolist()
        prompts, images = scores.prompts[: self.count], drawn.images[: self.count]
        look: dict[str, Any] = {"title": f"{title}, seed {self.seed}", "good": self.good}
        full_text = f"{name}.json"
        pictures = [*beside_sources(images, prompts)]
        grid(pictures, prompts, path, scores=shown, full_text=full_text, **look)
        self._table(name, title, drawn, scores)
        if images.ndim == 5:
            videos = images[:_MOVING]
            few: dict[str, Any] = {"columns": 4, "scores": shown[: len(videos)], **look}
            pages = []
            for frames in videos.unbind(1):
                small = [to_pil(frame) for frame in frames]
                for image in small:
                    image.thumbnail((_MOVING_LARGEST, _MOVING_LARGEST))
                pages.append(grid(small, prompts[: len(videos)], **few))
            with new_file(path.with_suffix(".gif")) as file:
                save_animation(pages, file, drawn.frame_rate)
        return path

    def record_preview(
        self, iteration: int, drawn: GeneratedSamples, count: int = STRIP_PROMPTS
    ) -> None:
        """Keep the samples of the first prompts for the strip."""
        self.kept.mkdir(parents=True, exist_ok=True)
        if drawn.texts is not None:
            write_json(self.kept / f"{iteration:06d}.json", drawn.texts[:STRIP_PROMPTS])
        for row, sample in enumerate(() if drawn.images is None else drawn.images[:count]):
            shown = picture(sample)
            if row >= STRIP_PROMPTS:
                shown.thumbnail((_LARGEST, _LARGEST))
            with new_file(image_file(self.folder, iteration, row)) as file:
                shown.save(file, "PNG")

    def record_evaluation(self, iteration: int, drawn: GeneratedSamples) -> None:
        """Keep the samples of an evaluation for the strip, and for the page's pairs those of the
        first and the last one.
        """
        self.record_preview(iteration, drawn, max(self.count, STRIP_PROMPTS))
        for (at, row), path in kept_images(self.folder).items():
            if at not in (0, iteration) and row >= STRIP_PROMPTS:
                path.unlink()

    def write_strip(self, prompts: Sequence[str]) -> None:
        """Write the strip of all that was kept, if anything was."""
        kept: dict[int, list[str]] = {}
        for path in sorted(self.kept.glob("*.json")):
            if path.stem.isdecimal():
                with suppress(FileError, FileNotFoundError):  # changed since it was kept
                    kept[int(path.stem)] = read_json(path, list[str])
        if kept:
            self._write_texts(kept, prompts[:STRIP_PROMPTS])
        elif columns := sorted({at for at, _ in kept_images(self.folder)}):
            self._draw_strip(columns, prompts[:STRIP_PROMPTS])

    def _write_texts(self, kept: Mapping[int, Sequence[str]], prompts: Sequence[str]) -> None:
        lines = ["# The same prompts over training", ""]
        for i, prompt in enumerate(prompts):
            rows = [[str(k), plain(v[i])] for k, v in kept.items() if i < len(v)]
            table = table_lines("rl", ["iteration", "response"], rows)
            lines += [f"## {plain(prompt)}", "", *table, ""]
        write_text(self.folder / "strip.md", "\n".join(lines))

    def _draw_strip(self, columns: Sequence[int], prompts: Sequence[str]) -> None:
        """Write strip.png, with the scores of the moments at which the weights were evaluated."""
        files = [[image_file(self.folder, at, i) for at in columns] for i in range(len(prompts))]
        rows = dict(readable_rows(files))
        if not rows:
            return
        of_column = [self._scores(at) for at in columns]
        sheet(
            [*rows.values()],
            self.folder / "strip.png",
            labels=[prompts[row] for row in rows],
            heads=[f"iteration {column}" for column in columns],
            scores=[[scores[row] for scores in of_column] for row in rows],
            title=f"{self.main} over training, seed {self.seed}",
            good=self.good,
            full_text=f"eval_{columns[0]:06d}.json",
        )

    def _scores(self, iteration: int) -> list[float | None]:
        """The scores of the strip's samples; None where these were not scored."""
        rows = samples_at(RunFolder(self.folder.parent), iteration, self.main)
        scores: list[float | None] = [sample.score for _, sample in rows[:STRIP_PROMPTS]]
        return scores + [None] * (STRIP_PROMPTS - len(scores))

    def _table(self, name: str, title: str, drawn: GeneratedSamples, scores: Scores) -> SampleTable:
        """Write the samples and all of their scores as JSON, for loggers and programs.

        It refers to the images that `record_preview` has kept of the same evaluation.
        """
        values = {self.main: scores.values[self.main], **scores.values}
        if drawn.kl is not None:
            values["KL"] = drawn.kl.numpy()
        columns = {key: column[: self.count].tolist() for key, column in values.items()}
        texts = None if drawn.texts is None else drawn.texts[: self.count]
        iteration = name.rpartition("_")[2]
        rows = range(STRIP_PROMPTS) if iteration.isdigit() else ()
        files = [image_file(self.folder, int(iteration), row) for row in rows]
        kept = [file for file in files if file.is_file()]
        table = sample_table(title, scores.prompts[: self.count], texts, columns, kept)
        table.save(self.folder / f"{name}.json")
        return table


def beside_sources(images: Tensor, prompts: Sequence[str]) -> Tensor:
    """Images `[B, 3, H, W]` uint8, each to the right of its prompt's picture, `[B, 3, H, 2 W]`.

    As they are where a prompt has no picture, and videos.
    """
    pictures = [prompt.open() for prompt in prompts if isinstance(prompt, PicturedText)]
    if len(pictures) < len(images) or images.ndim != 4 or not pictures:
        return images
    height, width = images.shape[-2:]
    resized = [one.resize((width, height), Image.Resampling.BICUBIC) for one in pictures]
    return torch.cat([torch.stack([from_pil(one) for one in resized]), images.cpu()], -1)


def draw_run(
    folder: RunFolder, status: str | None = None, advice: Sequence[str] | None = None
) -> Path:
    """Draw the curves of a run and write its page, whose path is returned.

    Raises:
        OSError: they can't be written.
    """
    from rlfactory.report.draw import draw_figure
    from rlfactory.report.page import write_run_page
    from rlfactory.report.run_content import RunContent
    from rlfactory.report.run_curves import BAND

    run = RunContent(folder, status, advice)
    title = f"{run.name}: {run.choices}" if run.choices else run.name
    draw_figure(run.curves, folder.curves, title=title, ticks=run.ticks, band=BAND)
    return write_run_page(run)


def show_results(
    folder: RunFolder, before: Scores, after: Scores | None, outcome: str, advice: Sequence[str]
) -> None:
    """Write curves, page and summary of a run at its end, and print where to look.

    `after` is None if the run stopped before the final weights were evaluated; `outcome` is the
    status that the page shows, `advice` messages about the run's health.
    """
    # what draws is loaded at the end of a run
    from rlfactory.report.summary import score_sections, where_to_look, write_summary
    from rlfactory.report.text_table import Terminal

    draw_run(folder, outcome, advice)
    read_pairs = set_pairs(read_sets(folder)).items()
    others = {name: (first, last if after else None) for name, (first, last) in read_pairs if name}
    pairs = {"": (before, after), **others}
    write_summary(folder, pairs, read(folder.metrics), advice)
    terminal = Terminal()
    if after is not None:
        terminal.sections(score_sections(pairs))
    for line in where_to_look(folder):
        terminal.console.print(line, markup=False, soft_wrap=True)
