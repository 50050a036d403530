"""Samples of rows: images, responses, and the same prompts drawn by several runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rlfactory.report.group import Group
from rlfactory.report.image_grid import strip
from rlfactory.report.report import SampleImage
from rlfactory.report.sample_pairs import SamplePair, main_score, readable_rows, sample_pairs
from rlfactory.run.folder import RunFolder
from rlfactory.run.samples import kept_images
from rlfactory.run.scores import Scores
from rlfactory.utils.data_files import FileError, read_json

_TEXTS = 4
_ROWS = 6


def sample_images(groups: Iterable[Group]) -> list[SampleImage]:
    """Of each row's first run: the same prompts over training, and the last samples."""
    return [
        image
        for group in groups
        if group.runs and not group.untrained
        for image in _images_of(group.name, group.runs[0].path, group.runs[0].seed)
    ]


def _images_of(row: str, run: Path, seed: int) -> list[SampleImage]:
    folder = RunFolder(run)
    grids = sorted(folder.samples.glob("eval_*.png"))
    captions = [(folder.strip, f"the same prompts over training, seed {seed}")]
    if grids and (number := grids[-1].stem.removeprefix("eval_")).isdecimal():
        iteration = int(number)
        captions.append((grids[-1], f"samples after {iteration} iterations, seed {seed}"))
    return [SampleImage(row, caption, path) for path, caption in captions if path.is_file()]


def texts(groups: Iterable[Group]) -> dict[str, list[SamplePair]]:
    """The first responses of each row's first run; none where they can't be read."""
    trained = [group for group in groups if group.runs and not group.untrained]
    shown = {group.name: _texts_of(RunFolder(group.runs[0].path)) for group in trained}
    return {row: pairs[:_TEXTS] for row, pairs in shown.items() if pairs}


def _texts_of(folder: RunFolder) -> list[SamplePair]:
    """The responses in a run's tables of samples, not chosen by anything."""
    pairs = sample_pairs(folder, main_score(folder))
    return [pair for pair in pairs if pair.before.text is not None and pair.after.text is not None]


def responses(run: Path) -> list[tuple[str, str, str]]:
    """A run's first evaluation prompts, its responses before training, and those at the end."""
    kept = sorted((RunFolder(run).samples / "strip").glob("*.json"))
    try:
        moments = [read_json(path, list[str]) for path in (kept[0], kept[-1])]
        prompts = Scores.load(RunFolder(run).evaluation(0)).prompts
    except (FileError, FileNotFoundError, IndexError):
        return []
    return [*zip(prompts, *moments, strict=False)]


def draw_prompt_grid(
    runs: Sequence[tuple[str, Path]],
    prompts: Sequence[str],
    path: Path,
    scores: Sequence[Sequence[float]] | None = None,
) -> Path | None:
    """Write a PNG with a row for each prompt and a column for each named run.

    It shows the last images that each run kept, and below them their scores, a list for each run;
    None where one kept none.
    """
    columns = [last_images(run) for _, run in runs]
    count = min(len(prompts), *map(len, columns))
    rows = dict(readable_rows([column[row] for column in columns] for row in range(count)))
    if not rows:
        return None
    below = None if scores is None else [[run[row] for run in scores] for row in rows]
    shown = [prompts[row] for row in rows]
    strip([*rows.values()], shown, [name for name, _ in runs], path, scores=below)
    return path


def last_images(run: Path) -> list[Path]:
    """The images that a run kept of its last evaluation, in the order of the prompts."""
    kept = kept_images(RunFolder(run).samples)
    last = max((iteration for iteration, _ in kept), default=0)
    return [kept[key] for key in sorted(kept) if key[0] == last][:_ROWS]
